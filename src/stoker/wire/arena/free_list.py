"""Free extents that belong to no worker: whichever of a loader's workers asks first gets one.

Promise: an extent is taken by one asker; nobody waits, and nobody who is killed keeps a lock.
"""

import os
import struct
from multiprocessing.reduction import DupFd
from typing import NamedTuple

from stoker import descriptors
from stoker.clock import Deadline
from stoker.poll_loop import wait_ready
from stoker.wire.arena.arena import Travelling


class Extent(NamedTuple):
    offset: int
    nbytes: int  # rounded to pages, see extents.py


# So little is written and read as a whole: pipe(7), PIPE_BUF.
_RECORD = struct.Struct("<QQ")


NOW = Deadline(0)


class FreeList:
    """A pipe of extents, both of whose ends every worker and the trainer hold.

    Raises OSError where the system gives no more descriptors.
    """

    def __init__(self, fds: tuple[int, int] | None = None) -> None:
        """fds: of a list made elsewhere, its reading end first."""
        self._read_fd, self._write_fd = fds or os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._is = descriptors.of(self._read_fd)  # of both ends

    def put(self, extent: Extent) -> None:
        """Make an extent anybody's. Where that cannot be done it is lost to this loader."""
        if descriptors.is_still(self._write_fd, self._is):
            try:
                os.write(self._write_fd, _RECORD.pack(*extent))
            except BlockingIOError:
                return  # thousands are free

    def take(self, deadline: Deadline = NOW) -> Extent | None:
        """Return an extent, which is the caller's from now on; None if none is free by then."""
        while descriptors.is_still(self._read_fd, self._is):  # else the script closed it
            try:
                record = os.read(self._read_fd, _RECORD.size)
            except BlockingIOError:
                if deadline.is_over() or not wait_ready(self._read_fd, by=deadline):
                    return None
                continue  # another may have been faster
            return (
                Extent(*_RECORD.unpack(record)) if record else None
            )  # else nobody writes any more
        return None

    def close(self) -> None:
        """Close this process's ends. Idempotent."""
        for fd in (self._read_fd, self._write_fd):
            descriptors.close(fd, self._is)
        self._read_fd = self._write_fd = -1

    def __del__(self) -> None:
        if hasattr(self, "_is"):
            self.close()

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle only while a process is being started: multiprocessing carries the descriptors."""
        return _list_of, (DupFd(self._read_fd), DupFd(self._write_fd))


def _list_of(*ends: Travelling) -> FreeList:
    read_fd, write_fd = (end.detach() for end in ends)
    for fd in (read_fd, write_fd):
        os.set_inheritable(fd, False)
    return FreeList((read_fd, write_fd))
