"""Defines what a driver needs of a decider.

Pure: no thread, clock, socket or torch.
"""

from collections.abc import Sequence
from typing import Protocol

from stoker.scheduler.events import Action, Event
from stoker.scheduler.tasks.reorder import Reorder
from stoker.scheduler.tasks.slot import Slot


class State(Protocol):
    """A decider: `scheduler.decider.Stream`, or `loaders.in_process.ahead.Ahead`."""

    num_lost: int
    num_replayed: int
    num_hedged: int
    why_barred: str
    why_not_away: str
    is_iterable: bool
    reorder: Reorder[object]

    @property
    def first_slots(self) -> Sequence[Slot]:
        """Slots whose workers are started at once."""

    @property
    def local_slots(self) -> Sequence[Slot]:
        """All slots of workers on this machine, but the fingerprint process's."""

    @property
    def next_slot(self) -> Slot | None:
        """The slot that owes the batch that leaves next; None where any may come."""

    @property
    def num_usable(self) -> int:
        """Workers that could be at work at once."""

    def slot_of(self, chain: int) -> Slot:
        """Return the slot of a chain's worker."""

    def owed_by(self, slot: Slot) -> list[int]:
        """Return the ids of the tasks that a slot's worker was sent and has not been heard to have done."""

    def step(self, event: Event) -> list[Action]:
        """Return what to do about an event."""

    def taken(self, task_id: int) -> list[Action]:
        """Return what to do now that a batch has left."""
