"""Which files a computation has opened, and whether they are still what they were.

A file is known by path, size, times of change of content and of status, inode and device: whoever
rewrites one and sets its size and time of change back cannot set back the time of status.

Promise: a file that was changed while, or just before, it was read gets no identity: what was read
of it may be the old or the new. A byte that was read of none of them is found by number, and a mapping
of another file or of shared memory by itself.
Owner: a worker's main thread. An audit hook cannot be removed, and costs 0.3 us for every file that
is opened.
"""

import contextlib
import functools
import io
import os
import sys
import types
import weakref
from collections.abc import Callable, Collection, Iterator, Sequence

from stoker.fingerprint.mapped import is_dated
from stoker.fingerprint.outside import TELLING, WRITES
from stoker.memory.watch.open_before import OpenBefore

# A change is noted in ticks of the kernel's coarse clock, 4 ms; on a network, of another's clock.
_SETTLED_NS = 100_000_000
_COUNTERS_NBYTES = 64  # of /proc/self/io that are read, which it counts itself
# A file that is opened may be read so often, and a buffer more: buffers are filled again after each seek. Measured with
# PIL, torch, NumPy, nibabel, pydicom, PyAV, soundfile and OpenCV: most read it once, torch.load one of 6 KB 3.8 times.
_TIMES_READ, _AGAIN_NBYTES = 4, io.DEFAULT_BUFFER_SIZE
_NOISE_NBYTES = 4096  # that the C library or the kernel's files may cost once: they end nothing
_LISTING = {"os.listdir", "os.scandir", "glob.glob", "glob.glob/2"}
_MAPPING = "mmap.__new__"
_HEARD = TELLING | _LISTING | {"open", _MAPPING}

Identity = tuple[str, int, int, int, int, int]


class Opened:
    """Notes the files that this process opens between `begin` and `end`. own: returns descriptors that
    are stoker's.

    is_explained: whether all that was read in between was read of these files.
    """

    def __init__(self, own: Callable[[], Collection[int]] = tuple) -> None:
        self._before = OpenBefore(own)
        self.is_explained = False
        self._paths: list[str] | None = None
        self._trace = self._first_trace = ""  # of a sample; of a library that it imports
        self._num_modules = 0
        self._read_nbytes: int | None = None
        _listen(self)

    def begin(self, counts_bytes: bool = True) -> None:
        """counts_bytes: whether to look for files that compiled code opens unseen, or that are open."""
        if counts_bytes:
            self._before.begin()
        self._read_nbytes = self._num_read() if counts_bytes else None  # opens a file itself
        self._paths, self._trace, self._first_trace = [], "", ""
        self._num_modules = len(sys.modules)

    def note(self, path: object) -> None:
        """Note a file that is opened by C code, which no audit hook hears of."""
        if self._paths is not None:
            self._paths.append(_as_text(path))

    def note_open(self, path: object, descriptor: int) -> None:
        """Note a file that is read through a descriptor, which may have been there before."""
        self.note(path)
        self._before.expect(descriptor)

    @contextlib.contextmanager
    def apart(self) -> Iterator[None]:
        """While this is open files are stoker's own, as /proc/self/maps while fingerprints are compared."""
        paths, before_nbytes = self._paths, self._num_read()
        self._paths = None
        try:
            yield
        finally:
            self._paths, after_nbytes = paths, self._num_read()
            if self._read_nbytes is not None and before_nbytes and after_nbytes:
                self._read_nbytes += after_nbytes - before_nbytes + _COUNTERS_NBYTES

    def end(self) -> tuple[list[str], str]:
        """Return the files that were opened since `begin`, each once, and a trace that was left
        outside or a folder that was listed, in words; empty if there is none."""
        paths, self._paths = self._paths or [], None
        excess_nbytes = self._excess_nbytes(paths)
        found = list(dict.fromkeys(paths))
        has_imported = len(sys.modules) != self._num_modules  # and read what it has imported
        if not has_imported:  # modules were run again, as by importlib.reload
            self._trace = self._trace or self._first_trace
        self.is_explained = excess_nbytes is not None and excess_nbytes <= 0
        if not self._trace and not has_imported and (excess_nbytes or 0) > _NOISE_NBYTES:
            self._trace = "reads a file that was opened by compiled code that is not known"
        return found, self._trace

    def _excess_nbytes(self, paths: list[str]) -> int | None:
        """Return how many bytes were read that the files do not explain; None if that cannot be told, or
        if one was open before that was read."""
        before_nbytes = self._read_nbytes
        nbytes = None if before_nbytes is None else self._num_read()
        if before_nbytes is None or nbytes is None:
            return None
        explained_nbytes = sum(_TIMES_READ * _size_of(path) + _AGAIN_NBYTES for path in paths)
        excess_nbytes = nbytes - before_nbytes - _COUNTERS_NBYTES - explained_nbytes
        return None if excess_nbytes <= 0 and self._before.were_read() else excess_nbytes

    def _num_read(self) -> int | None:
        """Return the bytes that this process has read; None if that cannot be told. Source: proc(5),
        /proc/pid/io, rchar."""
        try:
            return int(os.pread(_counters(os.getpid()), _COUNTERS_NBYTES, 0).split(None, 2)[1])
        except (OSError, ValueError, IndexError):
            return None

    def _hear(self, event: str, arguments: tuple[object, ...]) -> None:
        if self._paths is None:
            return
        frame = sys._getframe(2)
        if str(frame.f_globals.get("__name__")).startswith("importlib.") and is_importing(frame):
            return  # the first use of a library
        if event == _MAPPING:
            self._hear_mapping(frame, arguments[0])
        elif event == "open":
            path, _, flags = arguments
            if isinstance(flags, int) and flags & WRITES:
                self._note_trace(frame, "writes to a file")
            elif not isinstance(path, int):
                self._paths.append(_as_text(path))
        elif event in _LISTING:
            self._note_trace(frame, "lists a folder")
        else:
            self._note_trace(frame, f"calls {event}")

    def _hear_mapping(self, frame: types.FrameType, descriptor: object) -> None:
        """What is read through a mapping is not counted: its file is to be one of those that were opened."""
        if descriptor == -1 or not isinstance(descriptor, int):
            return  # memory
        mapped = identity_of("", descriptor)
        files = (identity_of(path) for path in self._paths or () if is_dated(path))
        if mapped is None or all(file is None or file[1:] != mapped[1:] for file in files):
            self._note_trace(frame, "maps memory, or a file that it has not opened")

    def _note_trace(self, frame: types.FrameType, what: str) -> None:
        if is_importing(frame):
            self._first_trace = what
        else:
            self._trace = what


@functools.cache
def _counters(pid: int) -> int:
    """Open /proc/self/io, once a process: a fork's copy tells of its parent."""
    return os.open("/proc/self/io", os.O_RDONLY | os.O_CLOEXEC)


_listening: "tuple[weakref.ref[Opened], ...]" = ()  # replaced, never changed: any thread may hear


def _listen(opened: Opened) -> None:
    """Have it hear of what happens, as long as it lives."""
    global _listening
    _add_hook()
    _listening = (*(each for each in _listening if each() is not None), weakref.ref(opened))


@functools.cache
def _add_hook() -> None:
    """Once a process: a hook cannot be removed."""
    sys.addaudithook(_tell)


def _tell(event: str, arguments: tuple[object, ...]) -> None:
    if event in (_HEARD or ()):  # None while the interpreter ends
        for each in _listening:
            if opened := each():
                opened._hear(event, arguments)


def is_importing(frame: types.FrameType | None) -> bool:
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
