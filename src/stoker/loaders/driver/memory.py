"""Holds what one loader's workers here write to: an arena for batches, a mark of the task at work,
and seats at the shelf of remembered samples.

Owner: the thread that iterates.
"""

from collections.abc import Sequence
from weakref import ref

from stoker.loaders.driver import forks
from stoker.memory.store import Seats, ShelfAccess, Wish
from stoker.scheduler.tasks.slot import FINGERPRINT, Slot
from stoker.wire.arena import Lender, Room
from stoker.wire.marks import Marks
from stoker.wire.sections import Taken


class Memory:
    def __init__(
        self,
        slots: Sequence[Slot],
        arena_nbytes: int,
        can_travel: bool,
        user: object = None,
        wish: Wish | None = None,
    ) -> None:
        """Take a region of an arena for each slot. can_travel: to processes that are spawned;
        user: see `ArenaPool.take`; wish: of seats at the shelf."""
        self._seats = Seats(wish, slots, are_spawned=can_travel)
        # Not the loader itself, which may have its iterator and so this: a cycle.
        self._user = None if user is None else ref(user)
        self._regions = forks.pool.take(len(slots), arena_nbytes, can_travel, user)
        self._places = {slot: place for place, slot in enumerate((*slots, FINGERPRINT))}
        self._marks = Marks(len(self._places), can_travel)

    def of(self, slot: Slot) -> tuple[Room | None, tuple[Marks, int], ShelfAccess | None]:
        """Return what a worker is given: where it may write, where it marks the task at work, and
        where samples are that were made before."""
        place, room = self._places[slot], None
        if self._regions is not None and slot != FINGERPRINT:
            room = self._regions.room(place)
        return room, (self._marks, place), self._seats.of(slot)

    def lender(self, slot: Slot) -> Lender | None:
        """Return the lender of the slot's region, if the system gave memory."""
        place = self._places.get(slot, -1)
        if self._regions is None or slot == FINGERPRINT or place < 0:
            return None
        return self._regions.lenders[place]

    @property
    def lenders(self) -> list[Lender]:
        """All lenders of the arena: an earlier loader may have had more slots."""
        return [] if self._regions is None else self._regions.lenders

    def taken(self, slot: Slot) -> list[Taken]:
        """Return what the slot's next worker must not write to."""
        return [] if self._regions is None else self._regions.taken(self._places[slot])

    def begun(self, slot: Slot) -> int:
        """Return the id of the task that the slot's latest worker was making, or NOTHING."""
        return self._marks.begun(self._places[slot])

    def clear(self, slot: Slot) -> None:
        """Erase a slot's mark, for another worker is about to start there."""
        self._marks.clear(self._places[slot])

    def abandon(self) -> None:
        """Close a forked child's copies of descriptors."""
        if self._regions is not None:
            self._regions.close()

    def give_back(self, is_written_to: bool = False) -> None:
        """Pool the arena for the next loader. is_written_to: a worker of this one lives yet."""
        if not is_written_to:
            self._seats.give_back()
        if self._regions is not None:
            self._regions.close()
            if not is_written_to:
                forks.pool.give(self._regions, self._user)
