"""Which files a computation has opened, and whether they are still what they were.

A file is known by path, size, times of change of content and of status, inode and device: whoever
rewrites one and sets its size and time of change back cannot set back the time of status.

A computation may also ask whether a file is there. That is known by what lies at the path, or that
nothing does.

Promise: a file that was changed while, or just before, it was read gets no identity: what was read
of it may be the old or the new.
Owner: a worker's main thread. An audit hook cannot be removed, and costs 0.3 us for every file that
is opened.
"""

import functools
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

from stoker.fingerprint.outside import TELLING, WRITES

# A change is noted in ticks of the kernel's coarse clock, 4 ms; on a network, of another's clock.
_SETTLED_NS = 100_000_000
_UNEXPLAINED_NBYTES = 4096  # reading the counters themselves is less
_LISTING = {"os.listdir", "os.scandir", "glob.glob", "glob.glob/2"}
_TELLING = TELLING | _LISTING
_STATUS = ("stat", "lstat")  # of os, which os.path and pathlib ask by these names
# In place of a size: nothing lies there; a folder, or what else is no file; a folder with what is in it.
_NOTHING, _NO_FILE, _FOLDER = -1, -2, -3

Identity = tuple[str, int, int, int, int, int]


class Opened:
    """Notes the files that this process opens between `begin` and `end`."""

    def __init__(self) -> None:
        self._paths: list[str] | None = None
        self._asked: dict[str, None] = {}
        self._trace = ""
        self._num_modules = 0
        self._counters: int | None = None  # /proc/self/io
        self._read_nbytes: int | None = None
        sys.addaudithook(self._hear)

    def begin(self, counts_bytes: bool = True) -> None:
        """counts_bytes: whether to look for files that compiled code opens unseen."""
        self._read_nbytes = self._num_read() if counts_bytes else None  # opens a file itself
        self._paths, self._asked, self._trace = [], {}, ""
        self._num_modules = len(sys.modules)

    def status_of(self, make: Callable[..., Any], *arguments: Any) -> Any:
        """Return what `make` returns, and note of which paths it asks for the status, between `begin`
        and `end`. Raises what it raises."""
        before = {name: getattr(os, name) for name in _STATUS}
        for name, function in before.items():
            setattr(os, name, self._noting(function))
        try:
            return make(*arguments)
        except BaseException as error:
            _without_ours(error)
            raise
        finally:
            for name, function in before.items():
                setattr(os, name, function)

    def _noting(self, function: Any) -> Callable[..., Any]:
        @functools.wraps(function)
        def noting(path: Any, *arguments: Any, **named: Any) -> Any:
            if not isinstance(path, int):
                self._asked[_as_text(path)] = None
            return function(path, *arguments, **named)

        return noting

    def note_folder(self, path: object) -> None:
        """Note that C code looks for more beside a file."""
        if self._paths is not None:
            self._asked[os.path.join(os.path.dirname(_as_text(path)), "")] = None  # noqa: PTH118, PTH120

    @property
    def asked(self) -> list[str]:
        """The paths whose status was asked for since `begin`; with a slash behind, of folders, all that
        lies in them."""
        return list(self._asked)

    def note(self, path: object) -> None:
        """Note a file that is opened by C code, which no audit hook hears of."""
        if self._paths is not None:
            self._paths.append(_as_text(path))

    def end(self) -> tuple[list[str], str]:
        """Return the files that were opened since `begin`, each once, and a trace that was left
        outside or a folder that was listed, in words; empty if there is none."""
        found, self._paths = list(dict.fromkeys(self._paths or [])), None
        has_imported = len(sys.modules) != self._num_modules  # and read what it has imported
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
                self._trace = "writes to a file"
            elif not isinstance(path, int):
                self._paths.append(_as_text(path))
        elif event in _LISTING:
            self._trace = "lists a folder"
        else:
            self._trace = f"calls {event}"


def _without_ours(error: BaseException) -> None:
    """Take the frames of `noting` out of a traceback, and of those of what led to it."""
    seen: set[int] = set()
    left: list[BaseException | None] = [error]
    while left:
        each = left.pop()
        if each is None or id(each) in seen:
            continue
        seen.add(id(each))
        left += [each.__cause__, each.__context__]
        here = each.__traceback__
        while here is not None:
            while here.tb_next is not None and here.tb_next.tb_frame.f_code is _NOTING_CODE:
                here.tb_next = here.tb_next.tb_next
            here = here.tb_next


_NOTING_CODE = next(
    each for each in Opened._noting.__code__.co_consts if getattr(each, "co_name", "") == "noting"
)


def _size_of(path: str) -> int:
    try:
        return os.stat(path).st_size  # noqa: PTH116
    except (OSError, ValueError):
        return 0


def _as_text(path: object) -> str:
    try:
        return os.path.abspath(os.fsdecode(path))  # type: ignore[arg-type]  # noqa: PTH100
    except (TypeError, ValueError, OSError):
        return ""


def identities(paths: Sequence[str], began_ns: int) -> tuple[Identity, ...] | None:
    """Return what the files are known by; None if one of them may have changed since `began_ns`."""
    found = []
    for path in paths:
        identity = identity_of(path)
        if identity is None or not is_settled(identity, began_ns):
            return None
        found.append(identity)
    return tuple(found)


def asked_identities(paths: Sequence[str], began_ns: int) -> tuple[Identity, ...] | None:
    """Return what tells the status of paths, also of those where there is nothing; None if that may
    have changed since `began_ns`."""
    found = []
    for path in paths:
        identity = _status_of(path)
        if identity is None or not is_settled(identity, began_ns):
            return None
        if identity[1] == _NOTHING and not _was_there_nothing(path, began_ns):
            return None
        found.append(identity)
    return tuple(found)


def _status_of(path: str) -> Identity | None:
    """Return what lies at a path: a file by its identity, a folder with a slash behind by its times,
    all else by its kind and inode."""
    try:
        status = os.stat(path)  # noqa: PTH116
    except (FileNotFoundError, NotADirectoryError):
        return (path, _NOTHING, 0, 0, 0, 0)
    except (OSError, ValueError):
        return None
    if path.endswith("/"):
        times = status.st_mtime_ns, status.st_ctime_ns
        return (path, _FOLDER, *times, status.st_ino, status.st_dev)
    if status.st_mode & 0o170000 != 0o100000:
        return (path, _NO_FILE, 0, 0, status.st_ino, status.st_dev)
    return identity_of(path)


def _was_there_nothing(path: str, began_ns: int) -> bool:
    """Whether nothing has come or gone in the folder that is there above a path."""
    while True:
        path = os.path.dirname(path)  # noqa: PTH120
        try:
            return os.stat(path).st_mtime_ns <= began_ns - _SETTLED_NS  # noqa: PTH116
        except (FileNotFoundError, NotADirectoryError):
            continue  # up to the root, which is there
        except (OSError, ValueError):
            return False


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


def are_same(told: Sequence[Identity]) -> bool:
    """Whether files are still what they were, and where there was nothing still is nothing."""
    return all(
        (identity_of if each[1] >= 0 else _status_of)(each[0]) == tuple(each) for each in told
    )
