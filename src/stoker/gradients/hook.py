"""Registers a DDP hook that compresses gradients, until the script registers a hook of its own.

DDP takes one hook and never another, so ours is there from the model's beginning and gives way: to
the script's, which then is called as DDP would call it; to a plain average, if Join counts ranks or
a bucket holds what cannot be compressed.
"""

import weakref
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import torch
import torch.distributed as dist

from stoker.gradients.blocks import loops_for
from stoker.gradients.buckets import Counts
from stoker.gradients.exchange import Exchange
from stoker.gradients.filters import FLOATS, Coding, coding_of
from stoker.gradients.gate import Measured, Picker, Seen, Survey, TrialResult, seen
from stoker.gradients.meeting import Meeting
from stoker.gradients.on_stream import OnStream

_register: Callable[..., None] = dist._register_comm_hook  # type: ignore[attr-defined]
SCHEMES = ("bf16", "8bit", "4bit")
BACKENDS = {"cpu": "gloo", "cuda": "nccl"}


def why_not(model: torch.nn.parallel.DistributedDataParallel) -> str:
    """Return why a model's gradients are left as they are; empty if they can be compressed."""
    if model._delay_all_reduce_all_params:  # first: such a model lacks what follows
        return "it delays the averages of all its parameters"
    if model._comm_hooks:
        return "it has a communication hook of its own (mixed_precision= registers one)"
    if model._use_python_reducer:
        return "torch.compile's python_reducer averages its gradients"
    if getattr(model, "lazy_bucket_allocation", False):  # of torch 2.15
        return "its buckets are allocated anew in each step (lazy_bucket_allocation=)"
    devices = {str(parameter.device) for parameter in model.parameters()}
    if len(devices) > 1:
        return f"it is on {', '.join(sorted(devices))}, and not on one device"
    device = device_of(model)
    wanted = BACKENDS.get(device.type)
    if wanted is None:
        return f"it is on {device.type}, and only CPUs' and CUDA's gradients are compressed"
    backend = model.process_group._get_backend(device).name()
    return "" if backend == wanted else f"its process group is {backend}'s, and not {wanted}'s"


def check_loops(model: torch.nn.Module) -> None:
    """Raise ImportError if a library is missing that compresses such a model's gradients."""
    loops_for(device_of(model))


def device_of(model: torch.nn.Module) -> torch.device:
    return next(model.parameters()).device


def exchange_on(
    device: torch.device, group: Any, coding: Coding, choice: Picker
) -> Exchange | OnStream:
    """Return what averages a model's buckets on its device: Exchange on a CPU, else OnStream."""
    if device.type == "cpu":
        return Exchange(group, coding, choice)
    return OnStream(group, coding, choice, device)


class Averages(Protocol):
    """Averages buckets over the ranks: Exchange, OnStream or Survey. closes_at_exit: whether
    `close` is called at exit too, not only when the model goes."""

    @property
    def closes_at_exit(self) -> bool: ...

    def exchange(
        self, parameters: list[torch.Tensor], buffer: torch.Tensor, is_first: bool
    ) -> Any: ...
    def close(self) -> None: ...


class Hook:
    """The communication hook of one model, registered with DDP by `attach`.

    exchange: averages the buckets that neither the script's hook nor a plain average takes; counts
    what it exchanged in `counts`.
    """

    def __init__(
        self, model: torch.nn.parallel.DistributedDataParallel, exchange: Averages, counts: Counts
    ) -> None:
        self._model: Callable[[], Any] = weakref.ref(model)
        self._theirs: tuple[Callable[..., Any], object] | None = None
        self._is_new_step = True
        self._is_waited_for = False  # the last bucket of a step
        self._exchange, self.counts = exchange, counts
        weakref.finalize(model, exchange.close).atexit = exchange.closes_at_exit

    def attach(self) -> None:
        _register(self._model().reducer, self, _average)

    def give_way(self, hook: Callable[..., Any], state: object) -> None:
        """Call the script's hook from now on. Raises what torch raises for a second one."""
        if self._theirs is not None:
            _register(self._model().reducer, state, hook)
        self._theirs = hook, state
        self.counts.scheme = None

    def average(self, bucket: Any) -> Any:
        if self._theirs is not None:
            hook, state = self._theirs
            return hook(state, bucket)
        model, buffer = self._model(), bucket.buffer()
        is_new_step, self._is_new_step = self._is_new_step, bucket.is_last()
        if model._join_config.enable:
            return _plain(model, buffer, _num_joining(model))
        ends_by_hand = getattr(model, "_require_manual_backward_finalization", False)  # torch 2.15
        if ends_by_hand or buffer.dtype not in FLOATS or buffer.layout is not torch.strided:
            self._is_new_step |= is_new_step
            return _plain(model, buffer, model.process_group.size())
        future = self._exchange.exchange(bucket.parameters(), buffer, is_new_step)
        if bucket.is_last() and buffer.device.type == "cpu":  # no backward pass waits on a device's
            self._is_waited_for = True
            future.add_done_callback(self._came)
        return future

    def exposed(self) -> float:
        """Return 1 while the backward pass has computed all gradients and waits for the other ranks, else 0.

        May be called by any thread: asks no future, whose lock may be held by who waits for the interpreter's.
        """
        return float(self._is_waited_for)

    def _came(self, future: Any) -> None:
        self._is_waited_for = False


def compressing(
    model: torch.nn.parallel.DistributedDataParallel,
    meeting: Meeting,
    scheme: str,
    patterns: Mapping[str, str],
    tell: Callable[[TrialResult | None], None],
) -> Hook:
    """Return a hook that compresses gradients. scheme: bf16, 8bit, 4bit, best (which permits all),
    or one of these with +ef; patterns: codes by parameter name; tell: called once with whether
    codes gain, by the thread that issues the collectives; None: no bucket was worth a trial."""
    device = device_of(model)
    group = meeting.own_group(device)
    coding = coding_of(model.module, scheme, patterns)
    exchange = exchange_on(device, group, coding, Picker(group, device, tell))
    exchange.counts.scheme = scheme
    return Hook(model, exchange, exchange.counts)


def surveying(
    model: torch.nn.parallel.DistributedDataParallel,
    meeting: Meeting,
    waited_s: Callable[[], float],
    tell: Callable[[Measured], None],
    stop: Callable[[], None],
) -> Hook:
    """Return a hook that averages as DDP does, and times the steps. Measures the links first, which
    takes all ranks some seconds."""
    device = device_of(model)
    schemes = {name: coding_of(model.module, name, {}).codes for name in SCHEMES}
    weak = weakref.ref(model)

    def read() -> Seen:
        return seen(weak()._get_ddp_logging_data())  # type: ignore[union-attr]  # it calls us

    group = meeting.own_group(device)
    survey = Survey(group, device, schemes, read, waited_s, tell, stop)
    return Hook(model, survey, Counts())


def _average(hook: Hook, bucket: Any) -> Any:
    return hook.average(bucket)


def _plain(model: Any, buffer: torch.Tensor, divisor: int) -> Any:
    """Average as DDP does without a hook (torch/csrc/distributed/c10d/reducer.cpp, 2.13)."""
    if buffer.layout is torch.strided:
        buffer.mul_(1.0 / divisor)
    else:
        buffer.div_(divisor)
    work = dist.all_reduce(buffer, group=model.process_group, async_op=True)
    return work.get_future().then(lambda done: done.value()[0])


def _num_joining(model: Any) -> int:
    """Return the number of ranks by which DDP would divide under `join()`."""
    if model._divide_by_initial_world_size:
        return int(model.process_group.size())
    # A rank that has joined calls hooks outside of a backward pass.
    is_alive = torch._C._current_graph_task_id() != -1
    alive = torch.tensor(int(is_alive), device=device_of(model))
    dist.all_reduce(alive, group=model.process_group)
    return int(alive)
