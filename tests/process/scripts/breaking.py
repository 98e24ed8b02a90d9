"""Breaks one piece of stoker after the other, each in a fork of its own, and iterates loaders there.

argv: `imports` or `functions`; which remainder modulo how many of the pieces. Prints a line of JSON
a piece. What is broken is found by a run that is whole: its modules, and the functions that it calls
in this process before each loader's first batch.
"""

import ast
import hashlib
import importlib
import json
import os
import random
import sys
import tempfile
import traceback
import types

import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info

what, nth, modulo = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
OURS = "stoker."
# These are the guard: what they promise cannot be had from themselves.
THE_GUARD = {
    ("stoker.intercept.loader", name)
    for name in ("_tried", "_handed_over", "_left", "_asked", "_first_batch", "_made", "_meter",
                 "_why_not", "_why_off", "_say_why", "_torchs", "meet", "place_of", "_follow", "_is_compared", "_is_in_worker",
                 "_drawn_of")
} | {("stoker.intercept.shuffle", "_guarded"), ("stoker.intercept.run", "say_once"),
     ("stoker.speak", "say"), ("stoker.blame", "in_words")}  # fmt: skip


class Drawing(Dataset):
    def __len__(self):
        return 12

    def __getitem__(self, index):
        return torch.rand(2) + index, random.random()


class Streamed(IterableDataset):
    def __iter__(self):
        worker = get_worker_info()
        for index in range(worker.id, 10, 2):
            yield torch.rand(2) + index


class Counted(torch.utils.data.Sampler):
    """Draws, and counts how often it is asked: to ask it anew would show."""

    num_asked = 0

    def __len__(self):
        return 12

    def __iter__(self):
        self.num_asked += 1
        return iter([int(torch.randint(12, ())) for _ in range(12)])


def digests():
    return {name: digest() for name, digest in (("mapped", mapped), ("kept", kept),
                                                ("streamed", streamed), ("alone", alone))}  # fmt: skip


def mapped():
    sampler = Counted()
    loader = DataLoader(Drawing(), 2, sampler=sampler, num_workers=2)
    return digest_of(loader), sampler.num_asked


def kept():
    generator = torch.Generator().manual_seed(3)
    loader = DataLoader(
        Drawing(), 3, shuffle=True, num_workers=2, generator=generator, persistent_workers=True
    )
    return digest_of(loader), generator.get_state().sum().item()


def streamed():
    return digest_of(DataLoader(Streamed(), 3, num_workers=2))


def alone():
    return digest_of(DataLoader(Drawing(), 4))


LATER = "a bug that showed after the first batch"  # which batch is first there depends on time


def digest_of(loader):
    torch.manual_seed(1)
    random.seed(2)
    digest = hashlib.sha256()
    for _ in range(2):
        batches = iter(loader)
        batch = next(batches)
        while batch is not None:
            values = batch if isinstance(batch, list) else [batch]
            digest.update(repr([value.tolist() for value in values]).encode())
            try:
                batch = next(batches, None)
            except RuntimeError as error:
                if "a bug of ours" in str(error):
                    return LATER
                raise
    digest.update(repr((torch.get_rng_state().tolist(), random.getstate())).encode())
    return digest.hexdigest()


def arm():
    os.environ["STOKER_RUN"] = "1"
    from stoker.intercept import arm

    arm.arm()


def in_fork(call):
    """What call gives in a fork of this process, and what that said of stoker's."""
    sys.stdout.flush()
    with tempfile.TemporaryFile() as answer, tempfile.TemporaryFile() as said:
        pid = os.fork()
        if pid == 0:
            try:
                os.dup2(said.fileno(), 2)
                answer.write(json.dumps(call()).encode())
                answer.flush()
            except BaseException:
                answer.truncate(0)
                answer.write(json.dumps({"error": traceback.format_exc()}).encode())
                answer.flush()
            finally:
                os._exit(0)
        os.waitpid(pid, 0)
        answer.seek(0)
        said.seek(0)
        lines = said.read().decode(errors="replace").splitlines()
        return json.loads(answer.read() or b"null"), [x for x in lines if x.startswith("stoker:")]


def rows():
    run = sys.modules.get("stoker.intercept.run")
    if run is None or run._recorder is None:
        return []
    return [[r.offloaded, r.reasons + r.notes] for r in run._recorder._loaders]


def whole():
    """Modules and functions of a run that is whole."""
    called = {}

    def note(frame, event, argument):
        function = frame.f_globals.get("__name__", ""), frame.f_code.co_qualname
        if function == ("stoker.intercept.meter", "Meter.look"):  # there is the batch
            sys.setprofile(None)
        elif event == "call" and function[0].startswith(OURS):
            called[function] = None

    arm()
    for loader in (DataLoader(Drawing(), 2, shuffle=True, num_workers=2),
                   DataLoader(Streamed(), 3, num_workers=2), DataLoader(Drawing(), 4)):  # fmt: skip
        sys.setprofile(note)
        iterator = iter(loader)
        next(iterator)
        sys.setprofile(None)
        del iterator
    return [sorted(m for m in sys.modules if m.startswith(OURS)), list(called)]


def of_the_pth_line():
    from stoker.intercept import arm

    return [module for module in sys.modules if arm and module.startswith(OURS)]


class Refuse:
    def __init__(self, module, error):
        self.module, self.error = module, error

    def find_spec(self, name, path=None, target=None):
        if name == self.module:
            raise self.error(f"{name} is broken")


def with_import(module, error):
    sys.meta_path.insert(0, Refuse(module, error))
    arm()
    return {"digests": digests(), "rows": rows()}


def broken_like(function):
    """Code that raises, with the free variables of a function: as if stoker had a bug there."""
    names = function.__code__.co_freevars
    body = "".join(f"    {name} = None\n" for name in names)
    source = f"def make():\n{body}    def broken(*a, **k):\n        {', '.join([*names, '0'])}\n"
    source += "        raise RuntimeError('a bug of ours')\n    return broken\n"
    ast.parse(source)
    space = {"__name__": function.__module__}
    exec(source, space)
    return space["make"]().__code__


def function_of(module, name):
    owner = sys.modules[module]
    for part in name.split("."):
        if part == "<locals>" or not hasattr(owner, part):
            return None
        owner = vars(owner).get(part)
    if isinstance(owner, property):
        owner = owner.fget
    owner = getattr(owner, "__func__", owner)
    owner = getattr(owner, "__wrapped__", owner)
    return owner if isinstance(owner, types.FunctionType) else None


def with_function(module, name):
    function = function_of(module, name)
    function.__code__ = broken_like(function)
    return {"digests": digests(), "rows": rows()}


# Around the script's own code, which is not run twice: what they raise is taken for its error.
AMID_A_BATCH = {
    ("stoker.loaders.in_process.first", name)
    for name in (
        "_next_data",
        "_first",
        "_second",
        "_third",
        "_decide",
        "_timed",
        "_make",
        "_pinned",
    )
}


def main():
    torch.set_num_threads(1)
    expected = in_fork(digests)[0]
    (modules, called), _ = in_fork(whole)
    if what == "imports":
        kinds = (ImportError, RuntimeError)
        early = in_fork(of_the_pth_line)[0]  # they are its own matter
        modules = [module for module in modules if module not in early]
        pieces = [(with_import, m, kinds[k % 2]) for k, m in enumerate(modules)]
        if modulo == 1:
            pieces += [(with_import, m, kinds[1 - k % 2]) for k, m in enumerate(modules)]
    else:
        arm()
        for module in modules:
            importlib.import_module(module)
        pieces = [
            (with_function, module, name)
            for module, name in called
            if (module, name) not in THE_GUARD
            and module != "stoker.worker.early"  # amid samples: an error there is the dataset's
            and (module, name.rpartition(".")[2]) not in AMID_A_BATCH
            and function_of(module, name) is not None
        ]
    for how, *piece in pieces[nth::modulo]:
        answer, said = in_fork(lambda how=how, piece=piece: how(*piece))
        got = (answer or {}).get("digests", {})
        is_right = all(
            LATER in (got.get(name), *(got.get(name) or ())) or got.get(name) == digest
            for name, digest in expected.items()
        )
        name = " ".join(str(getattr(part, "__name__", part)) for part in piece)
        told = {"piece": name, "is_right": is_right, "said": said, "answer": answer}
        print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main()
