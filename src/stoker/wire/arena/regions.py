"""One arena for all workers of a loader: a region for each, and extents that circulate among them.

A worker takes fresh memory from its own region, and gives it away with the batch that it sends: so
no more extents are touched than are in use at once, whichever worker needs them.
Owner: the thread that iterates.
"""

from stoker.wire.arena.arena import Arena
from stoker.wire.arena.circulation import Circulation
from stoker.wire.arena.extents import ALIGN_NBYTES
from stoker.wire.arena.heap import Room
from stoker.wire.arena.lender import Lender


class Regions:
    """An arena of `num` regions, with a lender for each. Raises OSError where the system refuses."""

    def __init__(self, num: int, region_nbytes: int, can_travel: bool) -> None:
        self.region_nbytes = region_nbytes - region_nbytes % ALIGN_NBYTES
        self.arena = Arena(num * self.region_nbytes, can_travel)
        self._circulation = Circulation()
        self.lenders = [Lender(self.arena, self._circulation) for _ in range(num)]
        for lender in self.lenders:
            self._circulation.add(lender)

    def lent_nbytes(self) -> int:
        return sum(lender.held_nbytes() for lender in self.lenders)

    def open(self, keeps_circulating: bool) -> None:
        """Begin with new workers, see `Circulation.open`."""
        for lender in self.lenders:
            lender.take_returned()  # the new workers have never heard of them
        self._circulation.open(keeps_circulating)

    def close(self) -> None:
        """End it for these workers; `open` begins anew. Idempotent."""
        self._circulation.close()

    def room(self, number: int) -> Room:
        start = number * self.region_nbytes
        return Room(self.arena, start, start + self.region_nbytes, self._circulation.free_list)
