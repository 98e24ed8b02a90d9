"""Holds what one loader's workers here write to: an arena for batches, a mark of the task at work.

Owner: the thread that iterates.
"""

from collections.abc import Collection, Sequence

from stoker.loaders.driver import forks
from stoker.scheduler.tasks.slot import FINGERPRINT, Slot
from stoker.wire.marks import Marks
from stoker.wire.slabs import Arena, Lender


class Memory:
    def __init__(self, slots: Sequence[Slot], arena_nbytes: int, can_travel: bool) -> None:
        """Take an arena for each slot. can_travel: to processes that are spawned."""
        self.lenders: dict[Slot, Lender | None] = {
            slot: forks.pool.take(arena_nbytes, can_travel) for slot in slots
        }  # a slot without one: the system refuses to map more
        self._places = {slot: place for place, slot in enumerate((*slots, FINGERPRINT))}
        self._marks = Marks(len(self._places), can_travel)

    def of(self, slot: Slot) -> tuple[Arena | None, tuple[Marks, int]]:
        """Return what a worker is given: its arena, and where it marks the task at work."""
        lender = self.lenders.get(slot)
        return None if lender is None else lender.arena, (self._marks, self._places[slot])

    def begun(self, slot: Slot) -> int:
        """Return the id of the task that the slot's latest worker was making, or NOTHING."""
        return self._marks.begun(self._places[slot])

    def clear(self, slot: Slot) -> None:
        """Erase a slot's mark, for another worker is about to start there."""
        self._marks.clear(self._places[slot])

    def give_back(self, but: Collection[Slot] = ()) -> None:
        """Pool the arenas for the next loader. but: slots whose workers may yet write to theirs."""
        for slot, lender in self.lenders.items():
            if lender is not None and slot not in but:
                forks.pool.give(lender)
