"""Shared memory for batches: written by one worker, read in place by the trainer.

Promise: an extent is written again only when nothing can see it any more: its last view on the
trainer's side died, the worker's own references died, and every process that was forked while a
view lived has ended.
Ban: no allocation per batch. A first touch of a page costs twenty times a second one.
"""

import ctypes
import mmap
import os
import select
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from multiprocessing.reduction import DupFd
from typing import Protocol
from weakref import ref

from stoker import descriptors
from stoker.wire.extents import Extents

# Extents that come back travel with the next task; from so many bytes on they are told at once,
# for a worker would rather write there than touch fresh memory, 20 times slower.
# Measured: benchmarks/memory.py, benchmarks/tokens.py
AT_ONCE_NBYTES = 1 << 20

# Address space of an arena of a worker on another machine, at either end. Only touched pages exist,
# but a process has 128 TiB for all.
ARENA_NBYTES = 64 << 30

_NORESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000)  # Linux; named in mmap from Python 3.13 on


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
        self._map = mmap.mmap(-1 if fd is None else fd, nbytes, flags=flags)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self._map))

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle only while a process is being started: multiprocessing carries the descriptor."""
        assert self._fd is not None, "this arena can only be inherited"
        return _arena_of, (self.nbytes, DupFd(self._fd))

    def __del__(self) -> None:
        fd = getattr(self, "_fd", None)
        if fd is not None:
            os.close(fd)

    def view(self, offset: int, nbytes: int) -> memoryview:
        """Return a view of these bytes; the caller knows that they are not freed meanwhile."""
        return memoryview(self._map)[offset : offset + nbytes]

    @property
    def fd(self) -> int:
        """The file descriptor of an arena that can travel."""
        assert self._fd is not None, "this arena can only be inherited"
        return self._fd

    def extent(self, offset: int, nbytes: int) -> "ctypes.Array[ctypes.c_ubyte]":
        """Return an object that exports these bytes and lives as long as any view of any view.

        A memoryview would not do: whoever makes a memoryview of it, as NumPy does, keeps the buffer
        but not that object.
        """
        return (ctypes.c_ubyte * nbytes).from_buffer(self._map, offset)


class _Travelling(Protocol):
    def detach(self) -> int: ...


def _arena_of(nbytes: int, descriptor: "_Travelling") -> Arena:
    fd = descriptor.detach()
    os.set_inheritable(fd, False)
    return Arena(nbytes, can_travel=True, fd=fd)


class _Loan(ref["ctypes.Array[ctypes.c_ubyte]"]):
    """A weak reference to an extent, with its offset and the forked children that may see it."""

    __slots__ = ("children", "nbytes", "offset")
    offset: int
    nbytes: int
    children: list["ForkedChild"]  # of forks made while the view lived: they may still see it


class Heap:
    """The worker's side of an arena: counts who holds which extent.

    Owner: the worker's only thread. Views may die at any moment (garbage collection), so their
    deaths are queued and handled in `allocate`.
    """

    def __init__(
        self,
        arena: Arena,
        taken: Iterable[tuple[int, int, int]] = (),
        hear: Callable[[], None] = lambda: None,
    ) -> None:
        """Take over an arena. taken: what an earlier worker of it has lent, see `Lender.lent`.
        hear: called before much memory is taken; it may `drop` what has come back."""
        self.arena = arena
        self._hear = hear
        taken = tuple(taken)
        self._extents = Extents(arena.nbytes, [(offset, nbytes) for offset, nbytes, _ in taken])
        self._num_holders = {offset: count for offset, _, count in taken}
        self._loans: dict[int, _Loan] = {}
        self._died: deque[int] = deque()

    def allocate(self, nbytes: int) -> memoryview | None:
        """Return a view that holds its extent while it lives; None if the arena is full."""
        if nbytes >= AT_ONCE_NBYTES:
            self._hear()
        self._bury()
        offset = self._extents.take(nbytes)
        if offset is None:
            return None
        extent = self.arena.extent(offset, nbytes)
        loan = _Loan(extent, self._on_death)
        loan.offset = offset
        self._loans[offset] = loan
        self._num_holders[offset] = 1
        return memoryview(extent).cast("B")

    def find(self, address: int) -> int | None:
        """Return the offset of the extent in use that starts at an address; None if none does."""
        offset = address - self.arena.address
        return offset if offset in self._num_holders else None

    def hold(self, offset: int) -> None:
        """Count one more holder: the trainer, to whom the extent is being sent."""
        self._num_holders[offset] += 1

    def drop(self, offset: int) -> None:
        """Count one holder less; the last one frees the extent."""
        left = self._num_holders[offset] = self._num_holders[offset] - 1
        if left == 0:
            del self._num_holders[offset]
            self._extents.give(offset)

    def _on_death(self, loan: "_Loan") -> None:
        self._died.append(loan.offset)

    def _bury(self) -> None:
        while self._died:
            offset = self._died.popleft()
            del self._loans[offset]
            self.drop(offset)


class Lender:
    """The trainer's side of an arena: tracks the extents that its tensors still view.

    Owner: the thread that iterates. Views die on any thread; their deaths go through deques.
    """

    def __init__(self, arena: Arena) -> None:
        self.arena = arena
        self._loans: dict[int, list[_Loan]] = {}
        self._died: deque[_Loan] = deque()
        self._seen: list[_Loan] = []  # dead here, but a forked process may still see them
        self._returned: list[int] = []  # free, but the worker has not been told
        self._returned_nbytes = 0
        self.lent_nbytes = 0

    def lend(self, offset: int, nbytes: int) -> memoryview:
        """Return a view of an extent that the worker sent; it goes back when the view dies."""
        extent = self.arena.extent(offset, nbytes)
        loan = _Loan(extent, self._died.append)
        loan.offset, loan.nbytes, loan.children = offset, nbytes, []
        self._loans.setdefault(offset, []).append(loan)
        self.lent_nbytes += nbytes
        return memoryview(extent).cast("B")

    def held_nbytes(self) -> int:
        """Return the bytes of all loans that something still holds."""
        if self._died or self._seen:
            self._look_at_dead()
        return self.lent_nbytes

    def take_returned(self, at_least_nbytes: int = 0) -> list[int]:
        """Return offsets that went back and were not taken yet, once for every time they were lent.

        Returns none of them before they come to `at_least_nbytes`.
        """
        if self._died or self._seen:
            self._look_at_dead()
        if not self._returned or self._returned_nbytes < at_least_nbytes:
            return []
        returned, self._returned, self._returned_nbytes = self._returned, [], 0
        return returned

    def _look_at_dead(self) -> None:
        while self._died:
            self._seen.append(self._died.popleft())
        for loan in self._seen:
            loan.children = [w for w in loan.children if not w.is_gone()]
            if not loan.children:
                self._forget(loan)
                self._returned.append(loan.offset)
                self._returned_nbytes += loan.nbytes
        self._seen = [loan for loan in self._seen if loan.children]

    def seen_by(self, child: "ForkedChild") -> None:
        """Note that a process was forked: it may see what is lent now until it ends."""
        for loans in self._loans.values():
            for loan in loans:
                if loan() is not None:  # one that died before waits for older forks only
                    loan.children.append(child)

    def lent(self) -> list[tuple[int, int, int]]:
        """Return the extents (offset, nbytes, how many times) that are lent now."""
        return [(offset, loans[0].nbytes, len(loans)) for offset, loans in self._loans.items()]

    def _forget(self, loan: _Loan) -> None:
        self.lent_nbytes -= loan.nbytes
        loans = self._loans[loan.offset]
        loans.remove(loan)
        if not loans:
            del self._loans[loan.offset]


class ForkedChild:
    """Tells whether a forked child, and all that it forked, still has this process's memory.

    A pipe whose writing end only the child keeps: it closes when the child ends or runs another
    program. Made before the fork; then call `in_parent` or `in_child`.
    """

    def __init__(self) -> None:
        self._read_fd, self._write_fd = os.pipe()
        self._is = descriptors.of(self._read_fd)  # of both ends
        self._is_gone = False

    def in_parent(self) -> None:
        descriptors.close(self._write_fd, self._is)

    def in_child(self) -> None:
        """Disable this copy; the writing end stays open while the child lives."""
        if not self._is_gone:
            descriptors.close(self._read_fd, self._is)
            self._is_gone = True

    def is_gone(self) -> bool:
        if not self._is_gone and not descriptors.is_still(self._read_fd, self._is):
            return False  # the script closed it: nobody can tell any more
        if not self._is_gone:
            poll = select.poll()
            poll.register(self._read_fd, 0)  # POLLHUP comes unasked
            if poll.poll(0):
                descriptors.close(self._read_fd, self._is)
                self._is_gone = True
        return self._is_gone

    def __del__(self) -> None:
        if not self._is_gone:
            descriptors.close(self._read_fd, self._is)


class ArenaPool:
    """Keeps arenas whose pages are touched already, for the next loader.

    Owner: the trainer; used under the stream's own calls only.
    """

    def __init__(self) -> None:
        self._lenders: list[Lender] = []

    def take(self, nbytes: int, can_travel: bool = False) -> Lender | None:
        """Return a lender with nothing lent; None if the system refuses to map more."""
        for i, lender in enumerate(self._lenders):
            lender.take_returned()
            if not lender.lent() and lender.arena.nbytes >= nbytes and not can_travel:
                return self._lenders.pop(i)
        try:
            return Lender(Arena(nbytes, can_travel))
        except (OSError, ValueError, OverflowError):
            return None

    def give(self, lender: Lender) -> None:
        if lender.arena.can_travel:
            return  # what it costs to make another is little beside a process that is spawned
        self._lenders.append(lender)
        del self._lenders[:-MAX_POOLED]

    def clear(self) -> None:
        self._lenders.clear()

    def __iter__(self) -> Iterator[Lender]:
        return iter(tuple(self._lenders))


MAX_POOLED = 32  # arenas kept between loaders; each holds the pages of one worker's batches
