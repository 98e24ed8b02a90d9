"""Tells whether a file was read through a descriptor that was there before: no audit hook hears of that.

The kernel tells of each read of a file (inotify(7), IN_ACCESS), by whichever process and function; not
of what is read through a mapping.

Promise: where it cannot tell, it says that one was read. A file that took the number of a socket or a pipe
which was closed meanwhile is found after a few samples.
Owner: a worker's main thread.
"""

import contextlib
import ctypes
import fcntl
import os
import stat
import struct
from collections.abc import Callable, Collection, Iterator

from stoker.trusted import is_library_file

_IN_ACCESS = 1  # of <sys/inotify.h>
_NOTICES_NBYTES = 1 << 16
_NOTICE = struct.Struct("iIII")
_LIST_EVERY = 64  # samples: to look at each of two dozen descriptors takes 90 us
# Files of installed libraries that stay open, and of which nothing but the library's version decides what they say:
# PROJ's coordinate systems, which GDAL asks for with each file.
_LIBRARIES = {"proj.db"}
_File = tuple[int, int]  # device and inode


class OpenBefore:
    """The files that can be read without opening them. own: returns descriptors of ours, which are
    not watched."""

    def __init__(self, own: Callable[[], Collection[int]]) -> None:
        self._own = own
        self._libc = ctypes.CDLL(None)
        self._notices = -1  # an inotify descriptor, once there is something to watch
        self._watched: dict[_File, int] = {}
        self._files: dict[int, _File] = {}  # by descriptor
        self._next = -1  # the number that a file got which was opened after these
        self._num_begun = 0
        self._probe = -1  # of a folder, to be duplicated
        self._is_sure = False
        self._expected: set[int] = set()  # by the numbers of `_watched`

    def __del__(self) -> None:
        for descriptor in (self._probe, self._notices):
            if descriptor >= 0:
                os.close(descriptor)

    def begin(self) -> None:
        """Watch the files that are open now."""
        try:
            self._begin()
            self._is_sure = -1 not in self._watched.values()
        except OSError:  # there are no more descriptors
            self._is_sure = False

    def _begin(self) -> None:
        if self._probe < 0:
            self._probe = os.open("/", os.O_RDONLY | os.O_CLOEXEC)
        following = os.dup(self._probe)
        os.close(following)
        is_old = following == self._next and self._num_begun % _LIST_EVERY != 0
        if not is_old or any(_plain_file(each) != self._files[each] for each in self._files):
            self._look()
        self._next = following
        self._num_begun += 1
        self._has_notices()  # of what came before
        self._expected.clear()

    def expect(self, descriptor: int) -> None:
        """Somebody has noted that it is read."""
        file = self._files.get(descriptor)
        if file is not None and file in self._watched:
            self._expected.add(self._watched[file])

    def _look(self) -> None:
        self._files = _readable(self._own())
        now = {file: descriptor for descriptor, file in self._files.items()}
        for file in self._watched.keys() - now.keys():
            self._libc.inotify_rm_watch(self._notices, self._watched.pop(file))
        for file in now.keys() - self._watched.keys():
            self._watched[file] = self._watch(now[file])

    def were_read(self) -> bool:
        """Whether one of them was read since `begin`."""
        return not self._is_sure or self._has_notices()

    def _watch(self, descriptor: int) -> int:
        """Return a number by which to end it; -1 if that cannot be watched."""
        if self._notices < 0:
            self._notices = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        path = f"/proc/self/fd/{descriptor}".encode()
        return int(self._libc.inotify_add_watch(self._notices, path, _IN_ACCESS))

    def _has_notices(self) -> bool:
        with contextlib.suppress(OSError):  # there are none
            told = os.read(self._notices, _NOTICES_NBYTES) if self._notices >= 0 else b""
            return any(each not in self._expected for each in _watches_in(told))
        return False


def _watches_in(told: bytes) -> Iterator[int]:
    """Iterate the numbers of the watches that notices are of. Source: inotify(7), struct inotify_event; a
    queue that ran over has number -1."""
    at = 0
    while at < len(told):
        number, _, _, num_more = _NOTICE.unpack_from(told, at)
        yield number
        at += _NOTICE.size + num_more


def _readable(own: Collection[int]) -> dict[int, _File]:
    """Return the plain files that are open and can be read, by descriptor, but for those of _LIBRARIES."""
    listed = map(int, os.listdir("/proc/self/fd"))  # noqa: PTH208 - before a sample
    found = {each: _plain_file(each) for each in listed if each not in own}
    return {
        each: file
        for each, file in found.items()
        if file is not None and _can_read(each) and not _is_librarys(each)
    }


def _plain_file(descriptor: int) -> _File | None:
    """Return what file a descriptor is of; None if it is of none, or of the kernel's own, which have no size."""
    try:
        status = os.fstat(descriptor)
    except OSError:  # of the listing itself, or closed
        return None
    is_plain = stat.S_ISREG(status.st_mode) and status.st_size > 0
    return (status.st_dev, status.st_ino) if is_plain else None


def _can_read(descriptor: int) -> bool:
    return fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE != os.O_WRONLY


def _is_librarys(descriptor: int) -> bool:
    path = os.readlink(f"/proc/self/fd/{descriptor}")  # noqa: PTH115  # text
    return os.path.basename(path) in _LIBRARIES and is_library_file(path)  # noqa: PTH119
