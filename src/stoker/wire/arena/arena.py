"""Shared memory for batches: a sparse mapping, and views of its extents whose deaths are heard of.

Promise: an extent is written again only when nothing can see it any more: its last view on the
trainer's side died (lender.py), the worker's own references died (heap.py), and every process that
was forked while a view lived has ended (forked_child.py).
Ban: no allocation per batch. A first touch of a page costs twenty times a second one.
"""

import contextlib
import ctypes
import mmap
import os
from collections.abc import Iterator
from multiprocessing.reduction import DupFd
from typing import Protocol
from weakref import ref

from stoker import descriptors
from stoker.wire.arena.forked_child import ForkedChild

# Address space of an arena of a worker on another machine, at either end. Only touched pages exist,
# but a process has 128 TiB for all.
ARENA_NBYTES = 64 << 30

_NORESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000)  # Linux; named in mmap from Python 3.13 on
_FIXED = 0x10  # MAP_FIXED. Source: Linux, asm-generic/mman-common.h
_libc = ctypes.CDLL(None)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *3 * [ctypes.c_int], ctypes.c_int64]
_libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


class Arena:
    """A sparse shared mapping that forked children inherit; pages exist once they are touched.

    It has no name and no file descriptor, so nothing of it can be left behind; with `can_travel`
    it has a descriptor, by which a process that is being started can be given it.
    Raises OSError where the system refuses (ulimit -v).
    """

    def __init__(self, nbytes: int, can_travel: bool = False, fd: int | None = None) -> None:
        self.nbytes = nbytes
        self.can_travel = can_travel
        flags = mmap.MAP_SHARED | _NORESERVE
        if can_travel and fd is None:
            fd = os.memfd_create("stoker-arena", os.MFD_CLOEXEC)
            os.ftruncate(fd, nbytes)
        if fd is None:
            flags |= mmap.MAP_ANONYMOUS
        self._fd = fd
        self._file = None if fd is None else descriptors.of(fd)
        self._map = mmap.mmap(-1 if fd is None else fd, nbytes, flags=flags)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self._map))

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle only while a process is being started: multiprocessing carries the descriptor."""
        assert self._fd is not None, "this arena can only be inherited"
        return _arena_of, (self.nbytes, DupFd(self._fd))

    def __del__(self) -> None:
        fd = getattr(self, "_fd", None)
        if fd is not None and self._file is not None:
            descriptors.close(fd, self._file)

    @property
    def has_descriptor(self) -> bool:
        """Whether it still has the descriptor that it had: a script may close that, and a collection
        finalizes an arena whose iterator then gives it to the pool."""
        return self._fd is not None and descriptors.is_still(self._fd, self._file)  # type: ignore[arg-type]

    def view(self, offset: int, nbytes: int) -> memoryview:
        """Return a view of these bytes; the caller knows that they are not freed meanwhile."""
        return memoryview(self._map)[offset : offset + nbytes]

    @property
    def fd(self) -> int:
        """The file descriptor of an arena that can travel."""
        assert self._fd is not None, "this arena can only be inherited"
        return self._fd

    def own_view(self, offset: int, nbytes: int) -> memoryview | None:
        """View these bytes through a mapping of its own: what is written there, nobody else sees.
        Only pages that are touched cost anything. None if the system does not map it so."""
        if self._fd is None or self._file is None or not descriptors.is_still(self._fd, self._file):
            return None
        start = offset // mmap.PAGESIZE * mmap.PAGESIZE
        mapped = _private(self._fd, start, offset + nbytes - start)
        return None if mapped is None else mapped[offset - start :][:nbytes]

    def protect(self, offset: int, nbytes: int) -> bool:
        """Make a range of whole pages read-only in this process and in those that it forks: a write there
        is a segmentation fault. Returns whether the system does that."""
        return self._set_access(mmap.PROT_READ, offset, nbytes)

    @contextlib.contextmanager
    def writable(self, offset: int, nbytes: int) -> Iterator[None]:
        """Make a protected range writable in this process, inside the `with` block. By one thread at a
        time. Raises OSError, also if it cannot be protected again."""
        start = offset // mmap.PAGESIZE * mmap.PAGESIZE
        length = -(-(offset + nbytes) // mmap.PAGESIZE) * mmap.PAGESIZE - start
        if not self._set_access(mmap.PROT_READ | mmap.PROT_WRITE, start, length):
            raise OSError("memory stays protected")
        try:
            yield
        finally:
            if not self._set_access(mmap.PROT_READ, start, length):
                raise OSError("memory stays writable")

    def _set_access(self, access: int, offset: int, nbytes: int) -> bool:
        return bool(_libc.mprotect(self.address + offset, nbytes, access) == 0)

    def release(self, offset: int, nbytes: int) -> bool:
        """Give whole pages of a range back to the system; they read as zeros from then on. Returns
        whether the system does that."""
        start = -(-offset // mmap.PAGESIZE) * mmap.PAGESIZE
        length = (offset + nbytes) // mmap.PAGESIZE * mmap.PAGESIZE - start
        if length > 0:
            try:
                self._map.madvise(mmap.MADV_REMOVE, start, length)
            except OSError:
                return False
        return True

    def extent(self, offset: int, nbytes: int) -> "ctypes.Array[ctypes.c_ubyte]":
        """Return an object that exports these bytes and lives as long as any view of any view.

        A memoryview would not do: whoever makes a memoryview of it, as NumPy does, keeps the buffer
        but not that object.
        """
        return (ctypes.c_ubyte * nbytes).from_buffer(self._map, offset)


def _private(fd: int, start: int, nbytes: int) -> memoryview | None:
    """Map a range of a file so that nobody else sees what is written to it; None if that fails.

    start: at a page. The descriptor is not kept, as the mmap module would.
    """
    room = mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    address = ctypes.addressof(ctypes.c_char.from_buffer(room))
    how = mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE | _FIXED
    if _libc.mmap(address, nbytes, *how, fd, start) != address:
        return None
    return memoryview(room)


class Travelling(Protocol):
    def detach(self) -> int: ...


def _arena_of(nbytes: int, descriptor: Travelling) -> Arena:
    fd = descriptor.detach()
    os.set_inheritable(fd, False)
    return Arena(nbytes, can_travel=True, fd=fd)


class Loan(ref["ctypes.Array[ctypes.c_ubyte]"]):
    """A weak reference to an extent that is being viewed, with what its owner has to know of it."""

    __slots__ = ("children", "circulates", "nbytes", "offset")
    offset: int
    nbytes: int
    circulates: bool
    children: list[ForkedChild]  # of forks made while the view lived: they may still see it
