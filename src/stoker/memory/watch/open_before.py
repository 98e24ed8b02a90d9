"""Tells whether a file was read through a descriptor that was there before: no audit hook hears of that.

The kernel tells of each read of a file (inotify(7), IN_ACCESS), by whichever process and function; not
of what is read through a mapping.

Promise: where it cannot tell, it says that one was read.
Owner: a worker's main thread.
"""

import contextlib
import ctypes
import fcntl
import os
import stat
from collections.abc import Callable, Collection

_IN_ACCESS = 1  # of <sys/inotify.h>
_NOTICES_NBYTES = 1 << 16
_File = tuple[int, int]  # device and inode


class OpenBefore:
    """The files that can be read without opening them. own: returns descriptors of ours, which are
    not watched."""

    def __init__(self, own: Callable[[], Collection[int]]) -> None:
        self._own = own
        self._libc = ctypes.CDLL(None)
        self._notices = -1  # an inotify descriptor, once there is something to watch
        self._watched: dict[_File, int] = {}

    def __del__(self) -> None:
        if self._notices >= 0:
            os.close(self._notices)

    def begin(self) -> None:
        """Watch the files that are open now."""
        now = _readable(self._own())
        for file in self._watched.keys() - now.keys():
            self._libc.inotify_rm_watch(self._notices, self._watched.pop(file))
        for file in now.keys() - self._watched.keys():
            self._watched[file] = self._watch(now[file])
        self._has_notices()  # of what came before

    def were_read(self) -> bool:
        """Whether one of them was read since `begin`."""
        return -1 in self._watched.values() or self._has_notices()

    def _watch(self, descriptor: int) -> int:
        """Return a number by which to end it; -1 if that cannot be watched."""
        if self._notices < 0:
            self._notices = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        path = f"/proc/self/fd/{descriptor}".encode()
        return int(self._libc.inotify_add_watch(self._notices, path, _IN_ACCESS))

    def _has_notices(self) -> bool:
        with contextlib.suppress(OSError):  # there are none
            return self._notices >= 0 and bool(os.read(self._notices, _NOTICES_NBYTES))
        return False


def _readable(own: Collection[int]) -> dict[_File, int]:
    """Return the plain files that are open and can be read, and a descriptor of each; the kernel's own
    have no size."""
    found = {}
    for descriptor in map(int, os.listdir("/proc/self/fd")):  # noqa: PTH208 - before each sample
        with contextlib.suppress(OSError):  # of the listing itself
            status = os.fstat(descriptor)
            if stat.S_ISREG(status.st_mode) and status.st_size and descriptor not in own:
                mode = fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE
                if mode != os.O_WRONLY:
                    found[status.st_dev, status.st_ino] = descriptor
    return found
