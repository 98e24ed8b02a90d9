"""Tells what a thread does by its stack: waits for data, copies, computes, talks to other ranks, or else.

A frame counts by the file of its code: torch's folders and ours are in a table. The innermost frame that says
something decides, but within a loader's `next` it is the loader that is waited for. A call of compiled code has no
frame: its name stands at the instruction that the innermost frame is at.

Pure but for what it remembers of code that it has seen.
"""

import dis
import enum
from collections.abc import Callable
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, Protocol

OURS = f"{Path(__file__).absolute().parent.parent}/"
MAX_KNOWN = 20_000  # codes; a script may make some at each step


class Kind(enum.Enum):
    """What a thread does. A value is the name of the seconds in Seen; WAIT is measured elsewhere."""

    WAIT = ""
    OWN = "own_s"
    COPY = "copy_s"
    COMPUTE = "compute_s"
    COMMUNICATION = "communication_s"
    OTHER = "other_s"
    HIDDEN = "hidden_s"  # waits, while the GPU computes


class Frame(Protocol):
    """A frame of Python's, as far as it is looked at."""

    @property
    def f_code(self) -> CodeType: ...
    @property
    def f_lasti(self) -> int: ...
    @property
    def f_back(self) -> Any: ...
    @property
    def f_globals(self) -> dict[str, Any]: ...


class _What(enum.Enum):
    """What a frame's code says of the thread."""

    NEXT = 1  # a loader's next, or its iter
    OURS = 2
    WAITS = 3  # ours, where it waits for workers, or makes samples in place of the script's dataset
    COMPUTE = 4
    BACKWARD = 5
    COMMUNICATION = 6
    PASSED = 7  # hands on a call of compiled code, whose name is its caller's
    NOTHING = 8


# A name is found faster than an attribute.
_NEXT, _OURS, _NOTHING = _What.NEXT, _What.OURS, _What.NOTHING

# Files of torch (2.13), the first match decides. A frame of theirs may be far out: only what runs the script's code as
# a part of a model counts, and not torch/multiprocessing or torch/utils, which run whole scripts.
_TORCHS = (
    *((start, _What.NOTHING) for start in (
        "distributed/elastic/", "distributed/launcher/", "distributed/run.py", "distributed/checkpoint/",
        "autograd/profiler",
    )),
    *((start, _What.COMPUTE) for start in ("distributed/tensor/", "autograd/function.py", "autograd/grad_mode.py")),
    ("distributed/", _What.COMMUNICATION),
    ("nn/parallel/distributed.py", _What.COMMUNICATION),
    ("autograd/", _What.BACKWARD),
    *((start, _What.PASSED) for start in ("utils/_device.py", "overrides.py")),
    *((start, _What.COMPUTE) for start in (
        "nn/", "optim/", "_tensor.py", "functional.py", "_ops.py", "_compile.py", "_dynamo/", "_inductor/", "_functorch/",
        "fx/", "cuda/", "xpu/", "accelerator/", "amp/grad_scaler.py", "linalg/", "fft/", "special/", "func/", "jit/",
        "utils/checkpoint.py",
    )),
)  # fmt: skip
_OWN_FILES = (
    ("poll_loop.py", _What.WAITS),
    ("memory/", _What.WAITS),
    ("worker/", _What.WAITS),
    ("images/", _What.WAITS),
    ("fast/", _What.WAITS),
    ("gradients/", _What.COMMUNICATION),
)
_NEXTS = {"__next__", "__iter__"}
# Calls of compiled code, by name. Of tensors' methods those whose names lists, texts and others have too say nothing.
# These wait for the device; where there is none, only Python's numbers are made.
DEVICE_READS = frozenset({"item", "tolist", "cpu", "numpy"})
COPIES = frozenset({"to", "cuda", "copy_", "pin_memory", "npu", "xpu", "_to_copy"})


class Kinds:
    """Tells the kind of stacks. torch_folder: where torch's package is.

    has_device: whether tensors are copied to a device in this process; else `.to` is a part of computing. exposed: the
    share of a backward pass, at this moment, that waits for other ranks. is_behind: whether the device has yet to do what it was
    given before the last batch was asked for, or handed out.
    """

    def __init__(
        self,
        torch_folder: str,
        methods: frozenset[str],
        has_device: Callable[[], bool],
        exposed: Callable[[], float],
        is_behind: Callable[[], bool],
    ) -> None:
        self._torch_folder = f"{torch_folder}/"
        self._methods, self._has_device, self._exposed = methods, has_device, exposed
        self._is_behind = is_behind
        self._known: dict[int, tuple[CodeType, _What]] = {}  # by id: to hash a code takes long
        # By id, and instruction.
        self._called: dict[tuple[int, int], tuple[CodeType, tuple[str | None, str]]] = {}

    def of(self, inner: Frame) -> list[tuple[Kind, float]]:
        """Return what a thread does whose innermost frame is given, with its share of the moment."""
        frame: Frame | None = inner
        found = _NOTHING
        known = self._known
        while frame is not None:  # there may be a hundred, of which each takes 0.1 us
            code = frame.f_code
            what = (known.get(id(code)) or self._note(code))[1]
            if what is not _NOTHING:
                if what is _NEXT:
                    if self._is_behind():
                        return [(Kind.HIDDEN, 1.0)]
                    is_own = (known.get(id(inner.f_code)) or self._note(inner.f_code))[1] is _OURS
                    return [(Kind.OWN if is_own else Kind.WAIT, 1.0)]
                if found is _NOTHING and what is not _OURS:
                    found = what
            frame = frame.f_back
        return self._outside_next(inner, found)

    def _outside_next(self, inner: Frame, found: _What) -> list[tuple[Kind, float]]:
        if found is _What.COMPUTE:
            return [(Kind.COMPUTE, 1.0)]
        if found is _What.BACKWARD:
            share = self._exposed()
            return [(Kind.COMMUNICATION, share), (Kind.COMPUTE, 1.0 - share)]
        if found is _What.COMMUNICATION:
            return [(Kind.COMMUNICATION, 1.0)]
        return [(self._kind_called(inner), 1.0)]

    def _kind_called(self, frame: Frame) -> Kind:
        """Return the kind by what the loop itself calls: compiled code has no frame."""
        while self._note(frame.f_code)[1] is _What.PASSED and frame.f_back is not None:
            frame = frame.f_back
        owner, name = self._called_by(frame)
        module = frame.f_globals.get(owner) if owner else None
        if isinstance(module, ModuleType):
            is_torchs = module.__name__.partition(".")[0] == "torch"
            return Kind.COMPUTE if is_torchs else Kind.OTHER
        if owner is None:
            return Kind.OTHER
        if name in COPIES:
            # A copy waits for its turn: first comes what was computed before.
            return Kind.COPY if self._has_device() and not self._is_behind() else Kind.COMPUTE
        if name in DEVICE_READS and not self._has_device():
            return Kind.OTHER
        return Kind.COMPUTE if name in self._methods else Kind.OTHER

    def _called_by(self, frame: Frame) -> tuple[str | None, str]:
        code, at = frame.f_code, frame.f_lasti
        known = self._called.get((id(code), at))
        if known is None:
            if len(self._called) > MAX_KNOWN:
                self._called.clear()
            known = self._called[id(code), at] = code, called_at(code, at)
        return known[1]

    def _note(self, code: CodeType) -> tuple[CodeType, _What]:
        """Return a code and what it says; the code, so that its id is no other's."""
        known = self._known.get(id(code))
        if known is not None:
            return known
        if len(self._known) > MAX_KNOWN:
            self._known.clear()
        return self._known.setdefault(id(code), (code, self._what_of(code)))

    def _what_of(self, code: CodeType) -> _What:
        file = code.co_filename
        if file.startswith(self._torch_folder):
            inner = file[len(self._torch_folder) :]
            if inner.startswith("utils/data/"):
                return _What.NEXT if code.co_name in _NEXTS else _What.NOTHING
            return _first_match(inner, _TORCHS, _What.NOTHING)
        if file.startswith(OURS):
            if code.co_name in _NEXTS:
                return _What.NEXT
            return _first_match(file[len(OURS) :], _OWN_FILES, _What.OURS)
        return _What.NOTHING


def _first_match(file: str, table: tuple[tuple[str, _What], ...], default: _What) -> _What:
    return next((what for start, what in table if file.startswith(start)), default)


def methods_of(tensor: type, others: tuple[type, ...]) -> frozenset[str]:
    """Return the names of methods that a tensor has, and no object of another kind."""
    common = {name for kind in others for name in dir(kind)}
    return frozenset(name for name in dir(tensor) if name[0] != "_" and name not in common)


def called_at(code: CodeType, lasti: int) -> tuple[str | None, str]:
    """Return what a frame calls at this instruction: its name, and of an attribute of a plain name that one, else "".
    (None, name) for a function that is no attribute; (None, "") if it calls nothing with a name.

    The call of `a.b(c)` begins where `a.b` does, and `b` is loaded by the instruction there that ends last before the
    call itself (Python 3.11 to 3.14, co_positions). `a @ b` counts as a call of `matmul`.
    """
    loads: list[tuple[tuple[Any, ...], tuple[Any, ...], str, str]] = []
    for each in dis.get_instructions(code):
        line, end_line, column, end_column = each.positions or (None,) * 4
        if each.offset == lasti:
            if each.opname == "BINARY_OP" and each.argrepr.startswith("@"):
                return "", "matmul"
            if line is None or not each.opname.startswith(("CALL", "PRECALL")):
                return None, ""
            here = sorted(
                (end, op, name) for begin, end, op, name in loads if begin == (line, column)
            )
            if not here:
                return None, ""
            _, op, name = here[-1]
            if op not in ("LOAD_ATTR", "LOAD_METHOD"):
                return None, name
            return (here[0][2] if len(here) == 2 else ""), name
        if line is not None and each.opname.startswith("LOAD_") and isinstance(each.argval, str):
            loads.append(((line, column), (end_line, end_column), each.opname, each.argval))
    return None, ""
