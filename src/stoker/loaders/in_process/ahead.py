"""Decides what to make ahead for a `num_workers=0` loader: step(event) -> actions.

Tasks are all free-standing, or follow one another in one process (`is_sequence`). Free-standing
ones are made on other machines as well, if they have the job. At the first surprise here (a
refusal, a failure, a death) that task and all later ones are given up, and the trainer makes them
itself, as torch would have. After one on another machine no other machine is asked again: this one
may have what that one lacks.

Promise: batches leave in order, each once. Pure: no thread, clock, socket or torch.
"""

import itertools
import sys
from dataclasses import dataclass, field

from stoker.errors import BrokenGuarantee
from stoker.scheduler.events import (
    Action,
    Ask,
    Bounded,
    Closed,
    Drawn,
    Event,
    FreeArrived,
    GiveUp,
    Kill,
    Late,
    Lost,
    NotIndependent,
    Offered,
    Start,
    WorkerReady,
)
from stoker.scheduler.free import FreeTasks
from stoker.scheduler.tasks.plan import Task
from stoker.scheduler.tasks.reorder import Reorder
from stoker.scheduler.tasks.slot import Exit, Role, Slot

TASKS_PER_SLOT = 2  # as torch's prefetch_factor
DIED = "a process that made its batches died"


@dataclass(slots=True, kw_only=True)
class Ahead:
    """The decider (`State`) of a `num_workers=0` loader. num_slots: workers of this machine;
    may_hedge: a batch that is late may be asked of a second worker."""

    num_slots: int
    is_sequence: bool = False
    may_hedge: bool = False
    num_lost: int = 0
    num_replayed: int = 0
    num_hedged: int = 0
    max_held: int = sys.maxsize  # batches that memory has room for
    why_barred: str = ""  # a Stream's
    is_iterable: bool = False
    why_not_away: str = ""  # other machines make batches no longer
    reorder: Reorder[object] = field(default_factory=lambda: Reorder(0))
    _next_id: int = 0
    _tasks: FreeTasks = field(init=False)
    _num_local: int | None = None  # of this machine's workers, while others help; None: all
    _why_over: str = ""
    _is_closed: bool = False

    def __post_init__(self) -> None:
        assert self.num_slots == 1 or not self.is_sequence
        self._tasks = FreeTasks(self.local_slots)

    @property
    def local_slots(self) -> list[Slot]:
        """All slots of workers on this machine."""
        return [Slot(Role.EXTRA, index) for index in range(self.num_slots)]

    @property
    def first_slots(self) -> list[Slot]:
        """Slots whose workers are started at once: all of this machine's."""
        return self.local_slots

    @property
    def wants_index(self) -> bool:
        """Whether one more index list should be drawn now."""
        num_in_flight = self._next_id - self.reorder.next_id
        num_room = max(self.max_held, TASKS_PER_SLOT * self.num_slots + 1)
        num_wanted = min(TASKS_PER_SLOT * len(self._slots()) + 1, num_room)
        return not self._why_over and num_in_flight < num_wanted

    @property
    def next_slot(self) -> Slot | None:
        """The slot that owes the batch that leaves next."""
        return next(iter(self._tasks.owed(self.reorder.next_id)), None)

    @property
    def num_usable(self) -> int:
        """Workers that could be at work at once."""
        return 1 if self.is_sequence else sys.maxsize

    def slot_of(self, chain: int) -> Slot:
        """Return a worker's slot, by its number."""
        return self.local_slots[chain]

    def owed_by(self, slot: Slot) -> list[int]:
        """Return the ids of the tasks that a slot's worker was sent and has not been heard to have done."""
        return [*self._tasks.on.get(slot, ())]

    def step(self, event: Event) -> list[Action]:
        """Return what to do about an event. Raises BrokenGuarantee on one that cannot occur."""
        match event:
            case _ if self._is_closed:
                return []  # late news after close is normal
            case Drawn(body):
                return self._drawn(Task(self._next_id, 0, body))
            case FreeArrived(slot, task_id, batch):
                if self._tasks.answered(slot, task_id):
                    self.reorder.hold(task_id, batch)
                return []
            case NotIndependent(slot, task_id, why):
                return self._refused(slot, task_id, why)
            case Lost(slot, how, was_given_back):
                self.num_lost += not was_given_back
                return self._lost(slot, how)
            case Offered(capacity, num_local, _, crowd):
                return self._offered(capacity, num_local, crowd)
            case Late(slot, task_id):
                return self._late(slot, task_id)
            case Bounded(max_held):
                self.max_held = min(self.max_held, max_held)
                return []
            case WorkerReady():
                return []
            case Closed():
                self._is_closed = True
                return []
        raise BrokenGuarantee(f"{event!r} for a loader without workers")

    def taken(self, task_id: int) -> list[Action]:
        self._tasks.taken(task_id)
        return []

    def forget(self) -> None:
        """Drop what is in flight: it was made of a wrong guess."""
        self._tasks.restart(0)
        for task_id in range(self.reorder.next_id, self._next_id):
            self.reorder.drop(task_id)
            self.reorder.skip(task_id)

    def _drawn(self, task: Task) -> list[Action]:
        self._next_id += 1
        return [GiveUp(task, self._why_over)] if self._why_over else [self._ask(task)]

    def _ask(self, task: Task) -> Ask:
        return Ask(self._tasks.ask(task, self._slots()), task, free=True)

    def _slots(self) -> list[Slot]:
        """Return the slots to ask: if others help, only as many here as leave the loop its core."""
        away = [slot for slot in self._tasks.on if _is_away(slot)]
        here = [slot for slot in self._tasks.on if not _is_away(slot)]
        return away + here[: self._num_local if away else None]

    def _refused(self, slot: Slot, task_id: int, why: str) -> list[Action]:
        if slot not in self._tasks.owed(task_id):
            return []
        return self._keep_here(why) if _is_away(slot) else self._give_up(why, task_id)

    def _lost(self, slot: Slot, how: Exit | None) -> list[Action]:
        orphans = self._tasks.close(slot)
        if not _is_away(slot):
            first = min((task.id for task in orphans), default=self._next_id)
            return self._give_up(DIED, first)
        if how is not None:
            return self._keep_here(f"{DIED} there") + self._ask_again(orphans)
        return self._ask_again(orphans)

    def _offered(self, capacity: int, num_local: int, crowd: tuple[Slot, ...]) -> list[Action]:
        """Fill the capacity of other machines, and end workers there that crowd a host."""
        self._num_local = num_local
        if self.is_sequence or self.why_not_away or self._why_over:
            return []
        actions = self._dismiss([slot for slot in crowd if slot in self._tasks.on])
        away = {slot for slot in self._tasks.on if _is_away(slot)}
        slots = (Slot(Role.REMOTE, index) for index in itertools.count())
        unused = (slot for slot in slots if slot not in away)
        for slot in itertools.islice(unused, max(capacity - len(away), 0)):
            self._tasks.on[slot] = {}
            actions.append(Start(slot, away=True))
        return actions

    def _keep_here(self, why: str) -> list[Action]:
        self.why_not_away = why
        return self._dismiss([slot for slot in self._tasks.on if _is_away(slot)])

    def _dismiss(self, slots: list[Slot]) -> list[Action]:
        orphans = [task for slot in slots for task in self._tasks.close(slot)]
        return [*(Kill(slot) for slot in slots), *self._ask_again(orphans)]

    def _ask_again(self, orphans: list[Task]) -> list[Action]:
        if orphans and not self._tasks.on:
            return self._give_up(DIED, min(task.id for task in orphans))
        return [self._ask(task) for task in orphans]

    def _late(self, slot: Slot, task_id: int) -> list[Action]:
        """Ask a second worker for a late batch."""
        task = self._tasks.on.get(slot, {}).get(task_id)
        others = [other for other in self._slots() if other != slot]
        may = self.may_hedge and any(map(_is_away, self._tasks.on))
        if not may or task is None or not others or len(self._tasks.owed(task_id)) > 1:
            return []
        self.num_hedged += 1
        self._tasks.late.add(slot)
        return [Ask(self._tasks.ask(task, others), task, free=True)]

    def _give_up(self, why: str, from_id: int) -> list[Action]:
        """Give up the task and all later ones; what was made before it is good."""
        self._why_over = self._why_over or why
        self._tasks.restart(from_id)
        for task_id in range(from_id, self._next_id):
            self.reorder.drop(task_id)
        return [GiveUp(Task(i, 0, b""), why) for i in range(from_id, self._next_id)]


def _is_away(slot: Slot) -> bool:
    return slot.role is Role.REMOTE
