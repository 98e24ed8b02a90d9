"""The worker's side of an arena: what of it the worker may write to.

Promise: an extent is given again only when its last holder, here or at the trainer, is gone.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple

from stoker.clock import Deadline, now_s
from stoker.wire.arena.arena import Arena, Loan
from stoker.wire.arena.circulation import Extent, FreeList
from stoker.wire.arena.extents import Extents, rounded
from stoker.wire.sections import Taken

# Extents that come back travel with the next task; from so many bytes on they are told at once, or
# are anybody's: a worker would rather write there than touch fresh memory, 20 times slower.
# Measured: benchmarks/memory.py, benchmarks/tokens.py
AT_ONCE_NBYTES = 1 << 20

MAX_LOOKS = 4  # into the free list, for an extent of the size that is wanted

# What it costs to touch fresh memory. A worker waits for an extent as long as that before it takes
# a fresh one: the trainer, about to give one back, may only want a core. All its waits together
# are this share of its time, and once as long. Measured: benchmarks/memory.py, benchmarks/handover.py
FRESH_S_PER_BYTE = 3e-10
WAIT_FRAC = 0.01


class Room(NamedTuple):
    """Says where a worker may write: its own region of an arena, from byte `start` to `end` (None: the
    arena's), and, where there is a list, whatever extent that has."""

    arena: Arena
    start: int = 0
    end: int | None = None
    free_list: FreeList | None = None


class Heap:
    """Counts who holds which extent.

    Owner: the worker's only thread. Views may die at any moment (garbage collection), so their
    deaths are queued and handled in `allocate`.
    """

    def __init__(
        self,
        room: Room,
        taken: Iterable[Taken] = (),
        hear: Callable[[], None] = lambda: None,
    ) -> None:
        """Take over a room. taken: what may not be written to, see `Regions.taken`.
        hear: called before much memory is taken; it may `drop` what has come back."""
        self.arena = room.arena
        self._hear = hear
        self._free_list = room.free_list
        self._circulating_nbytes = 0  # of each extent in the free list; 0: not known yet
        self._began_s, self._waited_s = now_s(), 0.0
        taken = tuple(taken)
        end = room.arena.nbytes if room.end is None else room.end
        self._extents = Extents(end, [(each.offset, each.nbytes) for each in taken], room.start)
        # Of the extents that circulate those that this worker has, with their bytes.
        self._num_holders = {each.offset: each.times for each in taken if each.times}
        self._borrowed = {
            each.offset: each.nbytes for each in taken if each.times and each.circulates
        }
        self._loans: dict[int, Loan] = {}
        self._died: deque[int] = deque()

    def allocate(self, nbytes: int) -> memoryview | None:
        """Return a view that holds its extent while it lives; None if there is no room."""
        if nbytes >= AT_ONCE_NBYTES:
            self._hear()
        self._bury()
        offset = self._borrow(rounded(nbytes)) if nbytes >= AT_ONCE_NBYTES else None
        if offset is None:
            offset = self._extents.take(nbytes)
        if offset is None:
            return None
        extent = self.arena.extent(offset, nbytes)
        loan = Loan(extent, self._on_death)
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
        if left:
            return
        del self._num_holders[offset]
        if offset in self._borrowed:
            assert self._free_list is not None
            self._free_list.put(Extent(offset, self._borrowed.pop(offset)))
        else:
            self._extents.give(offset)

    def give_away(self, sent: Collection[tuple[int, int]]) -> list[int]:
        """Return which of the extents (offset, nbytes) that were just sent are no more the worker's:
        large ones of one size, which nothing here holds. Once the trainer has seen them they are
        anybody's."""
        large = [(offset, rounded(nbytes)) for offset, nbytes in sent if nbytes >= AT_ONCE_NBYTES]
        if self._free_list is None or not large:
            return []
        self._bury()
        self._circulating_nbytes = self._circulating_nbytes or max(nbytes for _, nbytes in large)
        given = {
            offset
            for offset, nbytes in large
            if nbytes == self._circulating_nbytes == self._size_of(offset)
            and self._num_holders[offset] == 1
        }
        for offset in given:
            del self._num_holders[offset]
            self._borrowed.pop(offset, None)
        return sorted(given)

    def _borrow(self, nbytes: int) -> int | None:
        """Take an extent of just so many bytes from the free list."""
        if self._free_list is None or self._circulating_nbytes not in (0, nbytes):
            return None
        for _ in range(MAX_LOOKS):
            extent = self._free_list.take() or self._awaited(self._free_list)
            if extent is None:
                return None
            if extent.nbytes == nbytes:
                self._circulating_nbytes = nbytes
                self._borrowed[extent.offset] = nbytes
                return extent.offset
            self._free_list.put(extent)
            self._circulating_nbytes = self._circulating_nbytes or extent.nbytes
        return None

    def _awaited(self, free_list: FreeList) -> Extent | None:
        """Wait for an extent, if workers have given any, no longer than fresh memory would cost."""
        fresh_s = self._circulating_nbytes * FRESH_S_PER_BYTE
        before_s = now_s()
        allowed_s = fresh_s + WAIT_FRAC * (before_s - self._began_s) - self._waited_s
        if allowed_s <= 0.0:
            return None
        extent = free_list.take(Deadline(min(fresh_s, allowed_s)))
        self._waited_s += now_s() - before_s
        return extent

    def _size_of(self, offset: int) -> int:
        return self._borrowed.get(offset) or self._extents.size_of(offset)

    def _on_death(self, loan: Loan) -> None:
        self._died.append(loan.offset)

    def _bury(self) -> None:
        while self._died:
            offset = self._died.popleft()
            del self._loans[offset]
            self.drop(offset)
