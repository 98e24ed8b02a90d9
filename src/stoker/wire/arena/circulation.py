"""Lets extents circulate among a loader's workers, and lists those that are free.

Each was given away with a batch, by whoever made it, and is anybody's once nothing sees it any more:
whichever worker asks first gets it.
Promise: an extent that circulates is in one place: in the free list, with a worker, or lent; it is
never divided. Nobody waits for a lock, and nobody who is killed keeps one. What a worker had when it
was killed is found again when the next workers start.
"""

import os
import struct
from collections.abc import Collection
from multiprocessing.reduction import DupFd
from typing import NamedTuple

from stoker import descriptors
from stoker.clock import Deadline
from stoker.poll_loop import wait_ready
from stoker.wire.arena.arena import Travelling
from stoker.wire.arena.extents import rounded


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
            if not record:  # nobody writes any more
                return None
            return Extent(*_RECORD.unpack(record))
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


class Circulation:
    """The trainer's count of the extents that circulate. Owner: the thread that iterates."""

    def __init__(self) -> None:
        self.nbytes: dict[int, int] = {}  # of each extent, rounded; by offset
        self.free_list: FreeList | None = None

    def open(self, lent: Collection[int] = ()) -> None:
        """Begin with new workers; those before them have all ended. lent: offsets that are seen."""
        try:
            self.free_list = FreeList()
        except OSError:  # no descriptors: each worker keeps to its region
            self.free_list = None
        for offset in sorted(self.nbytes.keys() - set(lent)):
            self.free(offset)

    def close(self) -> None:
        """End it for these workers; `open` begins anew. Idempotent."""
        if self.free_list is not None:
            self.free_list.close()
            self.free_list = None

    def note(self, offset: int, nbytes: int) -> None:
        """Note that an extent belongs to no worker any more."""
        self.nbytes[offset] = rounded(nbytes)

    def free(self, offset: int) -> None:
        """Note that nothing sees it any more: any worker may have it."""
        if self.free_list is not None:
            self.free_list.put(Extent(offset, self.nbytes[offset]))
