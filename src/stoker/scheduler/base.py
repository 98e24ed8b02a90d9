"""What a driver asks of whoever decides.

Pure: no thread, clock, socket or torch.
"""

from typing import Any, Protocol

from stoker.order.reorder import Reorder
from stoker.scheduler.events import Action, Event


class State(Protocol):
    """Whoever decides: `scheduler.state.Stream`, or `spare.ahead.Ahead`."""

    num_slots: int
    num_lost: int
    num_replayed: int
    num_hedged: int
    max_held: int
    why_barred: str
    why_not_away: str
    is_iterable: bool
    max_deaths: int
    reorder: Reorder[Any]

    @property
    def num_chains(self) -> int:
        """Workers to start at once."""

    @property
    def next_slot(self) -> int | None:
        """The slot that owes the batch that leaves next; None where any may come."""

    @property
    def num_usable(self) -> int:
        """Workers that could be at work at once."""

    def slot_of(self, chain: int) -> int:
        """Where a chain's worker is."""

    def step(self, event: Event) -> list[Action]:
        """What to do about an event."""

    def taken(self, task_id: int) -> list[Action]:
        """What to do now that a batch has left."""
