"""What a stack says of a thread: the table of files, calls of compiled code, real stacks of torch's."""

import dis
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch
from torch.utils.data import DataLoader

from stoker.stalls.kinds import OURS, Kind, Kinds, called_at, methods_of

TORCH = "/site/torch"
METHODS = methods_of(torch.Tensor, (list, str, dict, set, bytes))


def kinds(has_device=False, exposed=0.0, folder=TORCH, is_behind=False):
    return Kinds(folder, METHODS, lambda: has_device, lambda: exposed, lambda: is_behind)


def stack(*frames):
    """frames: the outermost first, each "file:function"."""
    frame = None
    for each in frames:
        file, _, name = each.partition(":")
        scope = {}
        exec(compile(f"def {name or 'f'}(): pass", file, "exec"), scope)
        frame = SimpleNamespace(
            f_code=scope[name or "f"].__code__, f_lasti=0, f_back=frame, f_globals=scope
        )
    return frame


T, DATA = f"{TORCH}/", f"{TORCH}/utils/data/dataloader.py:__next__"
STACKS = {
    "the loop itself": (["train.py:main"], Kind.OTHER),
    "a loader's next": (["train.py:main", DATA, "/lib/queue.py:get"], Kind.WAIT),
    "a dataset, which computes": (["train.py:main", DATA, "data.py:__getitem__", f"{T}nn/functional.py"], Kind.WAIT),
    "workers start": (["train.py:main", f"{T}utils/data/dataloader.py:__iter__", "/lib/popen.py"], Kind.WAIT),
    "ours waits": (["train.py", f"{OURS}intercept/loader.py (as importlib._bootstrap):__next__", f"{OURS}poll_loop.py"],
                   Kind.WAIT),
    "ours waits, within Python's": (["train.py", f"{OURS}loaders/multiprocess.py:__next__", "/lib/selectors.py"], Kind.WAIT),
    "ours works": (["train.py", f"{OURS}loaders/multiprocess.py:__next__", f"{OURS}wire/batch_codec.py"], Kind.OWN),
    "remembered samples": (["train.py", f"{OURS}loaders/stand_in.py:__next__", f"{OURS}memory/place.py"], Kind.WAIT),
    "a module": (["train.py", f"{T}nn/modules/module.py", "net.py:forward"], Kind.COMPUTE),
    "an optimizer": (["train.py", f"{T}optim/sgd.py:step"], Kind.COMPUTE),
    "a backward pass": (["train.py", f"{T}_tensor.py:backward", f"{T}autograd/graph.py"], Kind.COMPUTE),
    "DDP's own": (["train.py", f"{T}nn/modules/module.py", f"{T}nn/parallel/distributed.py:forward"], Kind.COMMUNICATION),
    "a model in DDP": (["train.py", f"{T}nn/parallel/distributed.py:forward", f"{T}nn/modules/module.py"], Kind.COMPUTE),
    "DataParallel": (["train.py", f"{T}nn/parallel/data_parallel.py:forward"], Kind.COMPUTE),
    "a checkpoint": (["train.py", f"{T}distributed/checkpoint/state_dict_saver.py:save"], Kind.OTHER),
    "a function's forward": (["train.py", f"{T}autograd/function.py:apply"], Kind.COMPUTE),
    "a barrier": (["train.py", f"{T}distributed/distributed_c10d.py:barrier"], Kind.COMMUNICATION),
    "our hook": (["train.py", f"{T}autograd/graph.py", f"{OURS}gradients/hook.py"], Kind.COMMUNICATION),
    "torchrun's entry": ([f"{T}distributed/elastic/multiprocessing/api.py", "train.py"], Kind.OTHER),
    "spawned by torch": ([f"{T}multiprocessing/spawn.py:_wrap", "train.py"], Kind.OTHER),
    "in no_grad": (["train.py", f"{T}utils/_contextlib.py", "evaluate.py"], Kind.OTHER),
    "a library": (["train.py", "/site/lightning/loops.py"], Kind.OTHER),
}  # fmt: skip


@pytest.mark.parametrize(("frames", "kind"), STACKS.values(), ids=STACKS)
def test_the_innermost_frame_that_says_something_decides(frames, kind):
    assert kinds().of(stack(*frames))[-1] == (kind, 1.0)


def test_a_part_of_a_backward_pass_waits_for_other_ranks():
    frame = stack("train.py", f"{T}autograd/graph.py")
    assert kinds(exposed=0.25).of(frame) == [(Kind.COMMUNICATION, 0.25), (Kind.COMPUTE, 0.75)]


frame_of = sys._getframe


class Device:
    to = cuda = staticmethod(sys._getframe)


CALLS = {
    "a method": (lambda x: x.to(), ("x", "to")),
    "of an item": (lambda x: [x][0].cuda(0), ("", "cuda")),
    "of an attribute": (lambda x: sys.modules["sys"]._getframe(), ("", "_getframe")),
    "in an argument": (lambda x: str(x.to()) and x.cuda(0), ("x", "cuda")),
    "over lines": (lambda x: x
                   .to(
                       0), ("", "to")),
    "with stars": (lambda x: x.to(*(0,)), ("x", "to")),
    "after another": (lambda x: (x.cuda(), x.to(0))[1], ("x", "to")),
    "a module's": (lambda x: sys._getframe(0), ("sys", "_getframe")),
    "a function": (lambda x: frame_of(0), (None, "frame_of")),
}  # fmt: skip


@pytest.mark.parametrize(("call", "name"), CALLS.values(), ids=CALLS)
def test_a_call_of_compiled_code_has_a_name(call, name):
    frame = call(Device())  # as it is in the call: f_lasti stays there, for it returns
    seen = []

    def look(where, event, arg):
        if event == "c_call" and arg.__name__ == "_getframe":
            seen.append(called_at(where.f_code, where.f_lasti))

    sys.setprofile(look)
    try:
        call(Device())
    finally:
        sys.setprofile(None)
    assert frame is not None and name == seen[-1]


def kind_of_call(call, outer=(), has_device=False, is_behind=False, **scope):
    """What a loop is seen to do that calls so, at its only line."""
    found = kinds(has_device, is_behind=is_behind)
    frame = stack(*outer, "train.py")
    frame.f_globals.update(scope)
    found._called[id(frame.f_code), 0] = frame.f_code, call
    return found.of(frame)[-1][0]


def test_a_copy_is_one_only_where_there_is_a_device():
    assert kind_of_call(("x", "to"), has_device=True) is Kind.COPY
    assert kind_of_call(("x", "to")) is Kind.COMPUTE
    in_model = [f"{T}nn/modules/module.py"]
    assert kind_of_call(("x", "to"), in_model, has_device=True) is Kind.COMPUTE  # to another dtype


def test_while_the_device_is_behind_nobody_waits_for_data_and_nothing_is_copied():
    for name in ("a loader's next", "ours waits", "ours works"):
        assert kinds(is_behind=True).of(stack(*STACKS[name][0])) == [(Kind.HIDDEN, 1.0)]
    assert kind_of_call(("x", "to"), has_device=True, is_behind=True) is Kind.COMPUTE
    assert kinds(is_behind=True).of(stack("train.py:main")) == [(Kind.OTHER, 1.0)]


def test_what_the_loop_calls_itself_tells_what_it_does():
    assert kind_of_call(("loss", "item"), has_device=True) is Kind.COMPUTE
    assert kind_of_call(("loss", "item")) is Kind.OTHER  # nothing to wait for: a loop over numbers
    assert kind_of_call(("loss", "backward")) is Kind.COMPUTE
    assert kind_of_call(("torch", "cat"), torch=torch) is Kind.COMPUTE
    assert kind_of_call(("", "matmul")) is Kind.COMPUTE
    assert kind_of_call(("sys", "exp"), sys=sys) is Kind.OTHER  # as numpy's
    assert kind_of_call((None, "sum")) is Kind.OTHER
    assert kind_of_call((None, "")) is Kind.OTHER


def test_a_call_that_torch_hands_on_is_the_loops():
    """With torch.set_default_device all calls go through a function of torch's."""
    found = kinds()
    loop = stack("train.py", f"{T}utils/_device.py:__torch_function__")
    found._called[id(loop.f_back.f_code), 0] = loop.f_back.f_code, ("loss", "sum")
    assert found.of(loop) == [(Kind.COMPUTE, 1.0)]


def test_a_product_of_matrices_is_one():
    code = compile("a @ b", "train.py", "eval")
    (at,) = [each.offset for each in dis.get_instructions(code) if each.opname == "BINARY_OP"]
    assert called_at(code, at) == ("", "matmul")


def test_names_that_others_have_too_say_nothing():
    assert {"item", "backward", "matmul", "sum"} <= METHODS
    assert not {"index", "copy", "split", "sort", "__len__"} & METHODS


def test_code_that_is_made_anew_at_each_step_takes_no_memory(monkeypatch):
    monkeypatch.setattr("stoker.stalls.kinds.MAX_KNOWN", 10)
    found = kinds()
    for k in range(100):
        assert found.of(stack(f"train{k}.py", DATA, "data.py")) == [(Kind.WAIT, 1.0)]
    assert len(found._known) <= 11


class Probe(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        SEEN.append(REAL.of(sys._getframe()))
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        SEEN.append(REAL.of(sys._getframe()))
        return grad


SEEN = []
REAL = Kinds(torch.__path__[0], METHODS, lambda: False, lambda: 0.0, lambda: False)


class Net(torch.nn.Module):
    def forward(self, x):
        return Probe.apply(x)


def test_real_stacks_of_a_model_are_computing():
    SEEN.clear()
    x = torch.ones(3, requires_grad=True)
    Net()(x).sum().backward()
    assert [each[-1][0] for each in SEEN] == [Kind.COMPUTE, Kind.COMPUTE]
    optimizer = torch.optim.SGD([x], 0.1)
    optimizer.register_step_pre_hook(lambda *_: SEEN.append(REAL.of(sys._getframe())))
    optimizer.step()
    assert SEEN[-1] == [(Kind.COMPUTE, 1.0)]


class Looks(list):
    def __getitem__(self, i):
        SEEN.append(REAL.of(sys._getframe()))
        return super().__getitem__(i)


def test_a_real_loader_is_waited_for():
    SEEN.clear()
    assert len(list(DataLoader(Looks(range(4)), batch_size=2))) == 2
    assert SEEN == [[(Kind.WAIT, 1.0)]] * 4


def test_a_look_at_a_deep_stack_is_short():
    """In a process of its own: audit hooks, which other tests add for good, hear of each frame that is looked at."""
    script = """
import sys, time
from stoker.stalls.kinds import Kinds

def deep(levels):
    if levels:
        return deep(levels - 1)
    frame, times = sys._getframe(), []
    for _ in range(1000):
        began = time.perf_counter()
        kinds.of(frame)
        times.append(time.perf_counter() - began)
    return min(times)

kinds = Kinds("/torch", frozenset(), bool, float, bool)
print(deep(100))
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert float(done.stdout) < 100e-6  # half a percent of the time between two
