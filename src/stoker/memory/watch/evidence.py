"""Watches one sample being made, for whatever may make it differ the next time.

A profile function sees every function that is called, by Python and in C, and an audit hook every
file: a sample takes ten times as long so, and only the first few of a place are watched.

Promise: a use of time, of the system's randomness, of an object's address, of threads, of a
generator's seed or state, of a file's status or a folder's list, of output and of a compiled
library that is not known is found, if Python or a compiled function that it calls directly uses it.
That somebody asked whether a file is there, and of what kind, is told apart (`asked_kind`): asked.py hears of
each such question.
"""

import gc
import inspect
import multiprocessing
import os
import random
import sys
import threading
import types
import uuid
from collections.abc import Callable
from typing import Any

import torch
from torch.utils.data import get_worker_info

from stoker.fingerprint.modes import is_unheard
from stoker.memory.watch.files import absolute, is_importing
from stoker.memory.watch.lasting import is_of_session
from stoker.trusted import is_trusted

Tell = Callable[[str], object]

_STATE = {
    "seed", "manual_seed", "initial_seed", "getstate", "setstate", "get_state", "set_state",
    "__getstate__", "__setstate__", "spawn", "jumped",
}  # fmt: skip
# Functions in C by module and name; "" stands for all of a module's.
_TELLING_C = {
    "builtins": {"id", "hash", "input", "print", "breakpoint"},
    "time": {""},
    "_thread": {"start_new_thread", "start_new", "start_joinable_thread"},
    "_warnings": {"warn", "warn_explicit"},
    "posix": {
        "urandom", "getrandom", "stat", "lstat", "fstat", "listdir", "scandir", "access", "times",
        "getpid", "getppid", "gettid", "getloadavg",  "statvfs", "sysconf",
        "cpu_count", "sched_getaffinity", "getrusage", "write", "read", "lseek", "readlink",
        "pread", "preadv", "readv", "sendfile", "splice", "copy_file_range", "dup", "dup2",
    },
    "_random": {""}, "_uuid": {""}, "resource": {""}, "_socket": {""}, "select": {""}, "gc": {""},
    "_multiprocessing": {""}, "_posixsubprocess": {""}, "_locale": {""},
    "torch": {"from_file"}, "": {"from_file", "imread"},  # the latter: of a storage; of OpenCV
    "sys": {"getrefcount", "_getframe", "_current_frames", "getallocatedblocks"},
}  # fmt: skip
_METHODS_C = {
    "datetime": {"now", "utcnow", "today"}, "date": {"today"}, "object": {"__repr__"},
    "TextIOWrapper": {"write", "writelines"}, "BufferedWriter": {"write"}, "FileIO": {"write"},
    "Generator": _STATE, "RandomState": _STATE, "Random": _STATE, "SimpleQueue": {"get", "get_nowait"},
}  # fmt: skip
# They tell whether and what lies at a path: asked.py hears of that.
_KIND_OF_PATH = {
    "exists",
    "lexists",
    "isfile",
    "isdir",
    "islink",
    "is_file",
    "is_dir",
    "is_symlink",
}
_OF_PATHS = ("genericpath", "posixpath", "pathlib")
# Libraries use them to look things up, as enum, copy and namedtuple do; that decides no value. So do we, where
# a script has a file read or mapped by the name that we hear of (readers.py).
_BY_LIBRARIES = {
    "calls builtins.id", "calls builtins.hash", "calls sys._getframe", "calls torch.from_file",
    "calls from_file", "calls imread",
}  # fmt: skip
_WARNING = "calls warnings.warn"
_STATUS, _FILE_STATUS = "status", {"stat", "lstat", "fstat"}
# Compiled modules whose functions depend on nothing but what they are given, and on the three global
# generators; readers.py hears of the files that they read.
_KNOWN_C = frozenset({
    "_cffi_backend", "_soundfile", "numpy", "torch", "PIL", "torchvision", "torchaudio", "scipy",
    "soxr", "zlib", "_imaging",
})  # fmt: skip


_ENVIRONMENT_ITEM = type(os.environ).__getitem__.__code__
_ENVIRONMENT_ITEMS = type(os.environ).__iter__.__code__


def _codes(*functions: Any) -> dict[types.CodeType, str]:
    found = {}
    for function in functions:
        code = getattr(getattr(function, "__func__", function), "__code__", None)
        if code is not None:
            found[code] = getattr(function, "__qualname__", str(function))
    return found


_TELLING_PYTHON = _codes(
    random.seed, random.Random.seed, random.getstate, random.setstate, random.SystemRandom.random,
    random.SystemRandom.getrandbits, random.Random.__init__, uuid.uuid1, uuid.uuid4,
    threading.Thread.start, get_worker_info, multiprocessing.current_process, multiprocessing.parent_process,
)  # fmt: skip


_SEE_CALLERS = _codes(inspect.stack, inspect.currentframe)


def _is_own_and_seeded(name: str, frame: types.FrameType) -> bool:
    """Whether a generator is seeded that is not the global one, and by something."""
    if name not in ("Random.__init__", "Random.seed"):
        return False
    given = frame.f_locals
    seed = given.get("x" if name == "Random.__init__" else "a")
    return seed is not None and given.get("self") is not random._inst


def _module_of(frame: types.FrameType) -> str:
    """Return the module that a frame's code is of; Cython's have no globals, and a relative file."""
    name = frame.f_globals.get("__name__")
    return str(name) if name else frame.f_code.co_filename.replace("/", ".")


class Evidence:
    """Hears what happens between `begin` and `end`. tell: called with each use that counts; None:
    nothing is heard; trusted: compiled modules that the user answers for."""

    def __init__(self, tell: Tell | None, trusted: frozenset[str] = frozenset()) -> None:
        self._known = _KNOWN_C | trusted
        self._hears = tell is not None
        self._tell = tell or str
        self._seen: dict[object, str] = {}
        self.is_of_session = False  # a variable was read that another run has not
        # Paths whose status was asked, one of each tuple; where it was only asked what lies there.
        self.asked: list[tuple[str, ...]] = []
        self.asked_kind: list[tuple[str, ...]] = []

    def begin(self) -> None:
        if self._hears:
            sys.setprofile(self._hear)

    def end(self) -> None:
        if self._hears:
            sys.setprofile(None)

    def _hear(self, frame: types.FrameType, event: str, argument: Any) -> None:
        if event == "call":
            self._hear_python(frame)
        elif event == "c_call":
            self._hear_c(argument, frame)

    def _hear_python(self, frame: types.FrameType) -> None:
        code = frame.f_code
        name = _TELLING_PYTHON.get(code)
        if name is not None:
            if not _is_own_and_seeded(name, frame):
                self._say(frame, f"calls {name}")
        elif code is _ENVIRONMENT_ITEM:
            self.is_of_session |= is_of_session(frame.f_locals.get("key"))
        elif code is _ENVIRONMENT_ITEMS:
            self.is_of_session = True
        elif code in _SEE_CALLERS:
            if frame.f_back is not None and not is_trusted(_module_of(frame.f_back)):
                self._say(frame, f"calls inspect.{_SEE_CALLERS[code]}")
        elif code.co_name in ("seed", "manual_seed", "set_rng_state", "get_rng_state"):
            self._say(frame, f"calls {code.co_qualname}")

    def _hear_c(self, function: Any, frame: types.FrameType) -> None:
        owner, module = getattr(function, "__self__", None), getattr(function, "__module__", None)
        name = function.__name__
        if owner is None or module:  # a module's function, also one that pybind11 has made
            kind, module = None, module or ""
        else:
            kind = owner if isinstance(owner, type) else type(owner)
            module = kind.__module__
        if name == "manual_seed" and owner is not torch.default_generator:
            return  # the script's own; if others see it too, its position tells
        if name == "seed" and type(owner) is random.Random and owner is not random._inst:
            return  # heard of where Python's seed() called it
        what = self._seen.get((kind, module, name))
        if what is None:
            what = self._seen[kind, module, name] = _told_of(kind, module, name, self._known)
        if what == _STATUS:
            self._hear_status(frame)
        elif what == _WARNING:
            if not is_unheard(frame):
                self._say(frame, what)
        elif what in _BY_LIBRARIES:
            if not is_trusted(_module_of(frame)):
                self._say(frame, what)
        elif what:
            self._say(frame, what)

    def _hear_status(self, frame: types.FrameType) -> None:
        """A library that asks for the status of the file that it opens is as good as one that does
        not; one path among its local names is to be such a file's."""
        module = _module_of(frame)
        if module == "stoker.descriptors":  # the collector ends something of ours, in any sample
            return
        if module == "posixpath" and frame.f_code.co_name in ("realpath", "_joinrealpath"):
            return
        if module.startswith("importlib.") and is_importing(frame):  # the first use of a library
            return
        if not is_trusted(module):
            self._say(frame, "asks for a file's status")
            return
        values = (each for each in frame.f_locals.values() if isinstance(each, (str, os.PathLike)))
        paths = tuple(map(absolute, values))
        (self.asked_kind if _asks_what_lies_there(frame) else self.asked).append(paths)

    def _say(self, frame: types.FrameType, what: str) -> None:
        # The first use of a library looks for it in folders.
        is_first_use = _module_of(frame).startswith("importlib.") and is_importing(frame)
        if not is_first_use and not _is_collecting(frame):
            self._tell(what)


def _asks_what_lies_there(frame: types.FrameType | None) -> bool:
    """Whether a status is asked for in one of os.path's or pathlib's functions that tell no more."""
    while frame is not None and _module_of(frame).startswith(_OF_PATHS):
        if frame.f_code.co_name in _KIND_OF_PATH:
            return True
        frame = frame.f_back
    return False


def _is_collecting(frame: types.FrameType | None) -> bool:
    """Whether a frame is of a gc callback, as profilers have, which may come in any sample."""
    codes = {getattr(each, "__code__", None) for each in gc.callbacks}
    while frame is not None and codes:
        if frame.f_code in codes:
            return True
        frame = frame.f_back
    return False


def _told_of(kind: type | None, module: str, name: str, known: frozenset[str]) -> str:
    """Return what a use of a C function means, in words; empty if it is of no interest."""
    root = module.partition(".")[0]
    if kind is None:
        names = _TELLING_C.get(module)
        if module == "posix" and name in _FILE_STATUS:
            return _STATUS
        if names is not None and ("" in names or name in names):
            return f"calls {module.lstrip('_')}.{name}".replace(" .", " ")
    else:
        for base in kind.__mro__:
            if name in _METHODS_C.get(base.__name__, ()):
                return f"calls {base.__name__}.{name}"
    if not root or root in sys.stdlib_module_names or root in known or is_trusted(root):
        return ""
    why = f"calls {module}.{name}, compiled code that is not known"
    return f"{why}; --cache-trust {root} if that depends on its arguments alone"


def is_traced() -> bool:
    """Whether a debugger, a profiler or coverage watches this thread."""
    return sys.gettrace() is not None or sys.getprofile() is not None or _has_tools()


def _tools_of(monitoring: Any) -> Callable[[], bool]:
    """Return a function that tells whether a tool has registered. Source: docs.python.org,
    sys.monitoring, 3.12: tools have six numbers."""
    if monitoring is None:
        return bool
    return lambda: any(map(monitoring.get_tool, range(6)))


_has_tools = _tools_of(getattr(sys, "monitoring", None))
