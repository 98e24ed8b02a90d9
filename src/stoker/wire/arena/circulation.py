"""Extents that circulate among a loader's workers: each was given away with a batch, by whoever made
it, and is anybody's once nothing sees it any more.

Promise: an extent that circulates is in one place: in the free list, with a worker, or lent; it is
never divided. One that a worker had when it was killed is found again when the next workers start.
Owner: the thread that iterates.
"""

from collections.abc import Collection

from stoker.wire.arena.extents import rounded
from stoker.wire.arena.free_list import Extent, FreeList


class Circulation:
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

    # -- for lenders, see lender.py ----------------------------------------------------------------

    def note(self, offset: int, nbytes: int) -> None:
        self.nbytes[offset] = rounded(nbytes)

    def free(self, offset: int) -> None:
        if self.free_list is not None:
            self.free_list.put(Extent(offset, self.nbytes[offset]))
