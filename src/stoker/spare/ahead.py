"""What is made ahead for a loader without workers: step(event) -> actions.

Every task stands alone, or they follow one another in one process (`is_sequence`). Nothing is
asked twice: at the first surprise (a refusal, a failure, a death) that task and all later ones
are given up, and the trainer makes them itself, as torch would have.

Promise: batches leave in order, each once. Pure: no thread, clock, socket or torch.
"""

from dataclasses import dataclass, field
from typing import Any

from stoker.errors import BrokenGuarantee
from stoker.order.plan import Task
from stoker.order.reorder import Reorder
from stoker.scheduler.events import (
    Action,
    Arrived,
    Ask,
    Closed,
    Drawn,
    Event,
    GiveUp,
    Greeted,
    Lost,
    Refused,
)

TASKS_PER_SLOT = 2  # as torch's prefetch_factor


@dataclass(slots=True, kw_only=True)
class Ahead:
    """num_slots: workers. Has what a Driver asks of its state."""

    num_slots: int
    is_sequence: bool = False
    num_lost: int = 0
    num_replayed: int = 0
    num_hedged: int = 0
    max_held: int = 0  # a Stream's
    why_barred: str = ""  # a Stream's
    is_iterable: bool = False
    max_deaths: int = 1
    reorder: Reorder[Any] = field(default_factory=lambda: Reorder(0))
    _next_id: int = 0
    _owed: list[dict[int, Task]] = field(init=False)  # by slot
    _why_over: str = ""
    _is_closed: bool = False

    def __post_init__(self) -> None:
        assert self.num_slots == 1 or not self.is_sequence
        self._owed = [{} for _ in range(self.num_slots)]

    @property
    def num_chains(self) -> int:
        """Workers to start at once: all."""
        return self.num_slots

    @property
    def wants_index(self) -> bool:
        """Whether one more index list should be drawn now."""
        num_in_flight = self._next_id - self.reorder.next_id
        return not self._why_over and num_in_flight < TASKS_PER_SLOT * self.num_slots + 1

    @property
    def next_slot(self) -> int | None:
        """The slot that owes the batch that leaves next."""
        wanted = self.reorder.next_id
        return next((slot for slot, owed in enumerate(self._owed) if wanted in owed), None)

    @property
    def num_usable(self) -> int:
        """Workers that could be at work at once."""
        return self.num_slots

    def slot_of(self, chain: int) -> int:
        """A worker's slot: its number."""
        return chain

    def step(self, event: Event) -> list[Action]:
        """What to do about an event. Raises BrokenGuarantee on what cannot be."""
        match event:
            case _ if self._is_closed:
                return []  # late news after close is normal
            case Drawn(body):
                return self._drawn(Task(self._next_id, 0, body))
            case Arrived(slot, task_id, batch):
                if self._owed[slot].pop(task_id, None) is not None:
                    self.reorder.hold(task_id, batch)
                return []
            case Refused(slot, task_id, why):
                return self._give_up(why, task_id) if task_id in self._owed[slot] else []
            case Lost(slot):
                self.num_lost += 1
                first = min(self._owed[slot], default=self._next_id)
                return self._give_up("a process that made its batches died", first)
            case Greeted():
                return []
            case Closed():
                self._is_closed = True
                return []
        raise BrokenGuarantee(f"{event!r} for a loader without workers")

    def taken(self, task_id: int) -> list[Action]:
        return []

    def forget(self) -> None:
        """What is in flight was made of a wrong guess: nobody wants it."""
        for owed in self._owed:
            owed.clear()
        for task_id in range(self.reorder.next_id, self._next_id):
            self.reorder.drop(task_id)
            self.reorder.skip(task_id)

    def _drawn(self, task: Task) -> list[Action]:
        self._next_id += 1
        if self._why_over:
            return [GiveUp(task, self._why_over)]
        slot = min(range(self.num_slots), key=lambda s: len(self._owed[s]))
        self._owed[slot][task.id] = task
        return [Ask(slot, task, free=True)]

    def _give_up(self, why: str, from_id: int) -> list[Action]:
        """The task and all later ones; what was made before it is good."""
        self._why_over = self._why_over or why
        lost = [task for owed in self._owed for i, task in owed.items() if i >= from_id]
        for owed in self._owed:
            for task in lost:
                owed.pop(task.id, None)
        for task_id in range(from_id, self._next_id):
            self.reorder.drop(task_id)
        return [GiveUp(Task(i, 0, b""), why) for i in range(from_id, self._next_id)]
