"""Which files a computation has opened, and whether they are still what they were.

A file is known by path, size, times of change of content and of status, inode and device: whoever
rewrites one and sets its size and time of change back cannot set back the time of status.

Promise: a file that was changed while, or just before, it was read gets no identity: what was read
of it may be the old or the new.
Owner: a worker's main thread. An audit hook cannot be removed, and costs 0.3 us for every file that
is opened.
"""

import os
import sys
import types
from collections.abc import Sequence

from stoker.fingerprint.outside import TELLING, WRITES

# A change is noted in ticks of the kernel's coarse clock, 4 ms; on a network, of another's clock.
_SETTLED_NS = 100_000_000
_UNEXPLAINED_NBYTES = 4096  # reading the counters themselves is less
_LISTING = {"os.listdir", "os.scandir", "glob.glob", "glob.glob/2"}
_TELLING = TELLING | _LISTING

Identity = tuple[str, int, int, int, int, int]


class Opened:
    """Notes the files that this process opens between `begin` and `end`."""

    def __init__(self) -> None:
        self._paths: list[str] | None = None
        self._trace = self._first_trace = ""  # of a sample; of a library that it imports
        self._num_modules = 0
        self._counters: int | None = None  # /proc/self/io
        self._read_nbytes: int | None = None
        sys.addaudithook(self._hear)

    def begin(self, counts_bytes: bool = True) -> None:
        """counts_bytes: whether to look for files that compiled code opens unseen."""
        self._read_nbytes = self._num_read() if counts_bytes else None  # opens a file itself
        self._paths, self._trace, self._first_trace = [], "", ""
        self._num_modules = len(sys.modules)

    def note(self, path: object) -> None:
        """Note a file that is opened by C code, which no audit hook hears of."""
        if self._paths is not None:
            self._paths.append(_as_text(path))

    def end(self) -> tuple[list[str], str]:
        """Return the files that were opened since `begin`, each once, and a trace that was left
        outside or a folder that was listed, in words; empty if there is none."""
        found, self._paths = list(dict.fromkeys(self._paths or [])), None
        has_imported = len(sys.modules) != self._num_modules  # and read what it has imported
        if not has_imported:  # modules were run again, as by importlib.reload
            self._trace = self._trace or self._first_trace
        if self._trace or self._read_nbytes is None or has_imported:
            return found, self._trace
        nbytes = self._num_read() - self._read_nbytes
        explained_nbytes = 2 * sum(_size_of(path) for path in found) + _UNEXPLAINED_NBYTES
        if nbytes > explained_nbytes:
            self._trace = "reads a file that was opened by compiled code that is not known"
        return found, self._trace

    def _num_read(self) -> int:
        """Return the bytes that this process has read. Source: proc(5), /proc/pid/io, rchar."""
        try:
            if self._counters is None:
                self._counters = os.open("/proc/self/io", os.O_RDONLY | os.O_CLOEXEC)
            return int(os.pread(self._counters, 64, 0).split(None, 2)[1])
        except (OSError, ValueError, IndexError):
            return 0

    def _hear(self, event: str, arguments: tuple[object, ...]) -> None:
        if self._paths is None or (event != "open" and event not in _TELLING):
            return
        if str(sys._getframe(1).f_globals.get("__name__")).startswith("importlib."):
            return  # the first use of a library
        if event == "open":
            path, _, flags = arguments
            if isinstance(flags, int) and flags & WRITES:
                self._note_trace("writes to a file")
            elif not isinstance(path, int):
                self._paths.append(_as_text(path))
        elif event in _LISTING:
            self._note_trace("lists a folder")
        else:
            self._note_trace(f"calls {event}")

    def _note_trace(self, what: str) -> None:
        if _is_importing(sys._getframe(2)):
            self._first_trace = what
        else:
            self._trace = what


def _is_importing(frame: types.FrameType | None) -> bool:
    """Whether a frame is of a module's own code, which an import in a sample runs."""
    while frame is not None:
        name = str(frame.f_globals.get("__name__"))
        if name.startswith("stoker.memory."):  # which called the sample
            return False
        if name == "importlib._bootstrap":
            return True
        frame = frame.f_back
    return False


def _size_of(path: str) -> int:
    try:
        return os.stat(path).st_size  # noqa: PTH116
    except (OSError, ValueError):
        return 0


def _as_text(path: object) -> str:
    try:
        return absolute(path)
    except (TypeError, ValueError, OSError):
        return ""


def absolute(path: object) -> str:
    """Return a path from the root on, with each `..` in it: that goes up from where a link leads. Raises
    TypeError, ValueError, OSError."""
    text = os.fsdecode(path)  # type: ignore[arg-type]
    if ".." in text.split("/"):
        return os.path.join(os.getcwd(), text)  # noqa: PTH109, PTH118
    return os.path.abspath(text)  # noqa: PTH100


def identities(paths: Sequence[str], began_ns: int) -> tuple[Identity, ...] | None:
    """Return what the files are known by; None if one of them may have changed since `began_ns`."""
    found = []
    for path in paths:
        identity = identity_of(path)
        if identity is None or not is_settled(identity, began_ns):
            return None
        found.append(identity)
    return tuple(found)


def is_settled(identity: Identity, began_ns: int) -> bool:
    """Whether a file had been left alone for long enough when a read of it began."""
    return max(identity[2:4]) <= began_ns - _SETTLED_NS


def identity_of(path: str, descriptor: int | None = None) -> Identity | None:
    """Return what a file is known by; None if it cannot be asked for that, or is no plain file.

    descriptor: of the file as it was opened by that path, whatever may lie there by now.
    """
    try:
        # stat itself: it is on the way of every hit
        status = os.stat(path if descriptor is None else descriptor)  # noqa: PTH116
    except (OSError, ValueError):
        return None
    if status.st_mode & 0o170000 != 0o100000:
        return None
    return (
        path,
        status.st_size,
        status.st_mtime_ns,
        status.st_ctime_ns,
        status.st_ino,
        status.st_dev,
    )
