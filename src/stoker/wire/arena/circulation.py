"""Extents that circulate among a loader's workers: each was given away with a batch, by whoever made
it, and is anybody's once nothing sees it any more.

Promise: an extent that circulates is in one place: in the free list, with a worker, or lent; it is
never divided. One that a worker had when it was killed is found again when the next workers start.
Owner: the thread that iterates.
"""

from weakref import WeakSet

from stoker.wire.arena.extents import rounded
from stoker.wire.arena.free_list import Extent, FreeList
from stoker.wire.arena.lender import Lender
from stoker.wire.sections import Taken


class Circulation:
    def __init__(self) -> None:
        self._nbytes: dict[int, int] = {}  # of each extent, rounded; by offset
        self._lenders: WeakSet[Lender] = WeakSet()  # they refer to this
        self.free_list: FreeList | None = None

    def add(self, lender: Lender) -> None:
        self._lenders.add(lender)

    def open(self, keeps: bool) -> None:
        """Begin with new workers; those before them have all ended. keeps: the new ones will want
        extents of the same size."""
        if not keeps:
            self._nbytes.clear()
        try:
            self.free_list = FreeList()
        except OSError:  # no descriptors: each worker keeps to its region
            self.free_list = None
        lent = {each.offset for lender in self._lenders for each in lender.lent()}
        for offset in sorted(self._nbytes.keys() - lent):
            self.free(offset)

    def close(self) -> None:
        """End it for these workers; `open` begins anew. Idempotent."""
        if self.free_list is not None:
            self.free_list.close()
            self.free_list = None

    # -- for lenders, see lender.py ----------------------------------------------------------------

    def note(self, offset: int, nbytes: int) -> None:
        self._nbytes[offset] = rounded(nbytes)

    def free(self, offset: int) -> None:
        if self.free_list is not None:
            self.free_list.put(Extent(offset, self._nbytes[offset]))

    def taken(self, lender: Lender) -> list[Taken]:
        taken = {offset: Taken(offset, nbytes, 0, True) for offset, nbytes in self._nbytes.items()}
        for other in self._lenders:
            for each in other.lent():
                known = taken.get(each.offset, each._replace(times=0))
                will_hear = each.times if other is lender else 0
                taken[each.offset] = known._replace(times=known.times + will_hear)
        return list(taken.values())
