"""Tells whether what one process has unpickled can stand for what each of W workers would have.

Looked at are descriptors, threads and mappings, before and after, and the calls in between: what asks for
randomness that nobody has seeded, for the time or for the process gets another answer in each worker.

Promise: an empty answer means that W unpicklings would have given equal values, as far as Python calls
tell; else it is the reason in words.
Owner: the main thread of a process that multiprocessing has started.
"""

import contextlib
import gc
import importlib
import os
import random
import re
import sys
import threading
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from stoker.blame import is_installed

_SELF = Path("/proc/self")
_UNPICKLES = "multiprocessing.spawn"
_CLOCKS = {"time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "process_time",
           "localtime", "gmtime", "ctime", "strftime", "now", "utcnow", "today"}  # fmt: skip
# Functions in C, by module or class and name.
_DIFFERS = (
    {("time", name) for name in _CLOCKS}
    | {(kind, name) for kind in ("datetime", "date") for name in _CLOCKS}
    | {("posix", name) for name in ("urandom", "getrandom", "getpid", "getppid", "times")}
    | {("_thread", name) for name in ("get_ident", "get_native_id")}
    | {("Generator", "seed"), ("_uuid", "generate_time_safe")}
    # A process that W workers start is W processes.
    | {("_posixsubprocess", "fork_exec"), ("posix", "fork"), ("posix", "posix_spawn")}
)
# They follow forks, or were told of this one.
_KNOW_FORKS = ("multiprocessing.", "torch.multiprocessing.", "threading", "logging", "stoker.")
# Generators that are pickled are made first, with a seed of the system's, and are given their state then.
_MAKE_GENERATORS = ("numpy.random._pickle", "torch.utils.data.datapipes.")
# Threads that libraries start where they are imported: pyarrow's and polars' allocator, polars' janitor.
_HARMLESS_THREADS = ("jemalloc_bg", "polars-ooc")
_NUMPYS_BLOCK = 624  # words of the Mersenne Twister: those of a generator that was just seeded
_SHARED = re.compile(r"^\S+ .w.s \S+ (\S+) (\d+) *(.*)$")


class _Mapping(NamedTuple):
    device: str
    inode: int
    path: str


class Look:
    """One look at this process, from `begin` to `end`."""

    def __init__(self) -> None:
        self._files = {_identity(fd) for fd in _descriptors()}
        self._mappings = set(_shared_mappings())
        self._num_threads = _num_native()
        self._told = ""
        self._is_seeded = False  # Python's own generator
        self._numpys = _numpys_state()
        self._before = sys.getprofile()
        self._collects = gc.isenabled()
        gc.disable()  # a long list would be gone through again and again while it grows
        sys.setprofile(self._on_call)

    def end(self) -> str:
        """Return the reason why this copy cannot stand for others; empty: it can."""
        sys.setprofile(self._before)
        gc.freeze()  # or the next collection would go through all of it
        if self._collects:
            gc.enable()
        why = self._told or self._left()
        return why and f"unpickling it {why}; so each worker needs a copy of its own"

    def _left(self) -> str:
        state = _numpys_state()
        # Where it was seeded, nothing of its block has been drawn; what was drawn after that nobody knows.
        if state != self._numpys and state[1] != _NUMPYS_BLOCK:
            return "drew from NumPy's own generator"
        if len(threading.enumerate()) > 1 or _num_native() > self._num_threads:
            return "started a thread"
        for fd in _descriptors():
            path = _link(fd)
            if path == os.devnull:  # multiprocessing's own, in place of stdin
                continue
            if _identity(fd) not in self._files and not self._is_mapped_only(fd):
                kind = "socket" if path.startswith("socket:") else "descriptor"
                return f"left an open {kind} ({path})"
        for each in set(_shared_mappings()) - self._mappings:
            has_no_name = each.path.endswith("(deleted)") or not each.path.startswith("/")
            if has_no_name and not any(inode == each.inode for _, inode in self._files):
                return f"made shared memory ({each.path or 'without a name'})"
        return ""

    def _is_mapped_only(self, fd: int) -> bool:
        """Whether a descriptor only holds a file that is mapped, as Arrow's and NumPy's mapped files do:
        of its offset, which forks share, nobody makes use."""
        try:
            told = (_SELF / "fdinfo" / str(fd)).read_text().split()
            is_read_only = int(told[told.index("flags:") + 1], 8) & os.O_ACCMODE == os.O_RDONLY
        except (OSError, ValueError):
            return False
        identity = _identity(fd)
        num_open = sum(_identity(each) == identity for each in _descriptors())
        return is_read_only and num_open <= _mapped_inodes().count(identity[1])

    def _on_call(self, frame: types.FrameType, event: str, argument: Any) -> None:
        if self._told:
            return
        if event == "c_call":
            owner = getattr(argument, "__self__", None)
            module = getattr(argument, "__module__", None)
            kind = owner if isinstance(owner, type) else type(owner)
            where = module if owner is None or module else kind.__name__
            differs = (where, argument.__name__) in _DIFFERS
            if owner is random._inst:
                differs = not self._is_seeded and argument.__name__ in ("random", "getrandbits")
            if differs and _counts(frame):
                self._told = f"called {where}.{argument.__name__} {_at(frame)}"
        elif event == "call" and frame.f_code.co_qualname in ("Random.seed", "Random.setstate"):
            is_given = frame.f_locals.get("a", True) is not None
            self._is_seeded |= is_given and frame.f_locals.get("self") is random._inst
            caller = frame.f_back
            is_made = caller is not None and caller.f_code.co_qualname == "Random.__init__"
            maker = caller.f_back if caller is not None and is_made else caller
            # By the unpickler itself: then it is given its state.
            is_unpickled = is_made and maker is not None and _name_of(maker) == _UNPICKLES
            if not is_given and not is_unpickled and _counts(maker):
                self._told = f"called random.seed without a seed {_at(maker or frame)}"


_look: Look | None = None


class Watched(str):
    """A name that begins the look where it is unpickled: multiprocessing sends a process's name first
    of all, before its main module is imported. imported: a module that is not to be watched."""

    imported = ""

    def __reduce__(self) -> tuple[object, ...]:
        return begun, (str(self), self.imported)


def begun(name: str, imported: str) -> str:
    """Begin the look, once in a process; returns the name."""
    global _look
    if _look is None:
        with contextlib.suppress(Exception):  # ours: then there is no look, and so a reason
            importlib.import_module(imported)
            _look = Look()
    return name


def end() -> str:
    """End the look; returns why what was unpickled cannot stand for others."""
    return "stoker could not watch how it was unpickled" if _look is None else _look.end()


def _counts(frame: types.FrameType | None) -> bool:
    """Whether a call is of what is unpickled, and not of an installed module that is imported, nor of
    what is told of forks."""
    if frame is not None and _name_of(frame).startswith(_KNOW_FORKS):
        return False
    while frame is not None:
        name = _name_of(frame)
        if name == "importlib._bootstrap" or name.startswith(_MAKE_GENERATORS):
            return False
        is_ours = name.startswith("stoker.")
        if name == _UNPICKLES or not (is_ours or is_installed(frame.f_code.co_filename)):
            return True
        frame = frame.f_back
    return True


def _numpys_state() -> tuple[bytes, int]:
    """Return the key of NumPy's own generator, and how much of its block is drawn."""
    numpys = sys.modules.get("numpy.random")
    with contextlib.suppress(Exception):  # it is not loaded, or another kind of generator
        _, key, position, *_ = numpys.get_state()  # type: ignore[union-attr]
        return key.tobytes(), position
    return b"", _NUMPYS_BLOCK


def _at(frame: types.FrameType) -> str:
    file = Path(frame.f_code.co_filename)
    return f"({file.parent.name}/{file.name}:{frame.f_lineno})"


def _name_of(frame: types.FrameType) -> str:
    return str(frame.f_globals.get("__name__"))


def _descriptors() -> list[int]:
    found = [int(link.name) for link in (_SELF / "fd").iterdir()]
    return [fd for fd in found if _identity(fd) != (0, 0)]  # but that of the listing


def _identity(fd: int) -> tuple[int, int]:
    """Return a descriptor's device and inode; zeros if it is not open."""
    try:
        status = os.fstat(fd)
    except OSError:
        return 0, 0
    return status.st_dev, status.st_ino


def _link(fd: int) -> str:
    try:
        return str((_SELF / "fd" / str(fd)).readlink())
    except OSError:
        return ""


def _maps() -> list[str]:
    with contextlib.suppress(OSError):
        return (_SELF / "maps").read_text(errors="replace").splitlines()
    return []


def _shared_mappings() -> Iterator[_Mapping]:
    """Iterate what is mapped shared, to be written."""
    for line in _maps():
        if found := _SHARED.match(line):
            yield _Mapping(found[1], int(found[2]), found[3])


def _mapped_inodes() -> list[int]:
    return [int(line.split(None, 5)[4]) for line in _maps()]


def _num_native() -> int:
    """Return how many threads there are that a fork would miss, also in C. OpenBLAS's are not among them, up to
    as many as it starts: it ends them before a fork, and starts them anew at their next use."""
    names = [(task / "comm").read_text() for task in (_SELF / "task").iterdir()]
    num = sum(not name.startswith(_HARMLESS_THREADS) for name in names)
    libraries = {line.split(None, 5)[5] for line in _maps() if "openblas" in line}
    wanted = [os.environ.get(name, "") for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS")]
    most = [len(os.sched_getaffinity(0)), *(int(text) for text in wanted if text.isdecimal())]
    return max(num - len(libraries) * (min(filter(None, most)) - 1), 1)
