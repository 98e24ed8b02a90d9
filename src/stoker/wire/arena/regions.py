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
from stoker.wire.sections import Taken


class Regions:
    """An arena of `num` regions, with a lender for each. num_parts: each is so many times smaller
    than was asked for. Raises OSError where the system refuses."""

    def __init__(
        self, num: int, asked_nbytes: int, can_travel: bool = False, num_parts: int = 1
    ) -> None:
        self.asked_nbytes = asked_nbytes
        self.region_nbytes = asked_nbytes // num_parts // ALIGN_NBYTES * ALIGN_NBYTES
        self.arena = Arena(num * self.region_nbytes, can_travel)
        self._circulation = Circulation()
        self.lenders = [Lender(self.arena, self._circulation) for _ in range(num)]

    def lent_nbytes(self) -> int:
        return sum(lender.held_nbytes() for lender in self.lenders)

    def open(self, keeps_circulating: bool) -> None:
        """Begin with new workers; those before them have all ended. keeps_circulating: the new ones
        will want extents of the same size."""
        for lender in self.lenders:
            lender.take_returned()  # the new workers have never heard of them
        if not keeps_circulating:
            self._circulation.nbytes.clear()
        self._circulation.open([each.offset for lender in self.lenders for each in lender.lent()])

    def close(self) -> None:
        """End it for these workers; `open` begins anew. Idempotent."""
        self._circulation.close()

    def taken(self, number: int) -> list[Taken]:
        """Return what the region's next worker must leave alone."""
        taken = {
            offset: Taken(offset, nbytes, 0, True)
            for offset, nbytes in self._circulation.nbytes.items()
        }
        for other, lender in enumerate(self.lenders):
            for each in lender.lent():
                known = taken.get(each.offset, each._replace(times=0))
                will_hear = each.times if other == number else 0
                taken[each.offset] = known._replace(times=known.times + will_hear)
        return list(taken.values())

    def room(self, number: int) -> Room:
        start = number * self.region_nbytes
        return Room(self.arena, start, start + self.region_nbytes, self._circulation.free_list)
