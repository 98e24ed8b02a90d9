"""Holds what the decider knows of a stream: chains, free-standing tasks, limits, capacity.

Questions are answered here; `rules/` change it, and `rules/table.py` says which rule an event calls
in which phase. It is changed in place: a copy per batch would cost more than the batch.
Pure: no thread, clock, socket or torch.
"""

import sys
from collections import deque
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from stoker.errors import BrokenGuarantee
from stoker.scheduler.free import FreeTasks
from stoker.scheduler.history import Chain, Where
from stoker.scheduler.tasks.plan import Task
from stoker.scheduler.tasks.reorder import Reorder
from stoker.scheduler.tasks.slot import Role, Slot


class Phase(Enum):
    __hash__ = object.__hash__  # Enum's own runs Python, and rules are looked up for each batch

    HOME = "every task runs on its own chain's worker, in the chain's order"
    ASKED = "chains seem to draw nothing: further workers tell the state at iter(), and every task is watched"
    FREE = "tasks stand alone: any worker makes any task"
    BARRED = "a task drew or something moved: home for good"
    CLOSED = "the loop has ended"


class Limits(NamedTuple):
    """Thresholds in counts, seconds, bytes and shares."""

    max_deaths: int = 3
    """Of workers while they made one task; then the task is to blame. 1: none can be replaced."""
    max_in_vain: int = 10
    """Of a chain's workers one after another, none of which gave a batch: killed while they start,
    make again what was made, or are idle. The chain pauses longer before each."""
    max_ours_in_vain: int = 2
    """The same where stoker itself failed: it would once more."""
    max_deaths_away: int = 2
    """Of workers on other machines, which may lack what this one has; the last try is here."""
    free_cost_s: float = 0.0003
    """What the generators cost each task that stands alone."""
    free_cost_frac: float = 0.05
    """That and a look at the job's state must be smaller beside the task.
    Measured: tests/unit/fingerprint/test_fingerprint.py prints both."""
    long_history_nbytes: int = 8 << 20
    """Of index lists, about two epochs of ImageNet: worth a process that tells the fingerprint at
    iter(), so that what a point covers can be forgotten."""
    second_start_s: float = 0.05
    """A second worker's start: a fork, its greeting, a round trip. Measured: tests/process/test_away.py"""


@dataclass(slots=True, kw_only=True, eq=False)
class StreamState:
    """State of a stream. num_slots: workers that free-standing tasks may use; may_be_free: this job
    may have free-standing tasks (rung 5); is_iterable: a chain's tasks are all alike, and it may
    end before others; is_stateful: what was drawn ahead is part of a state that the script can see,
    and workers hear of every epoch; first_chain: the one that the first epoch begins with;
    persistent: workers outlive an iterable; may_hedge: a late batch may be asked of a second worker; max_held: see Bounded."""

    num_chains: int
    prefetch_factor: int
    in_order: bool = True
    num_slots: int = 1
    may_be_free: bool = False
    is_iterable: bool = False
    is_stateful: bool = False
    first_chain: int = 0
    persistent: bool = False
    may_hedge: bool = False
    max_held: int = sys.maxsize
    limits: Limits = field(default_factory=Limits)

    phase: Phase = Phase.HOME
    why_barred: str = ""
    why_not_away: str = ""  # an Ahead's
    num_lost: int = 0
    num_replayed: int = 0
    num_hedged: int = 0

    reorder: Reorder[object] = field(init=False)
    next_id: int = 0
    first_id: int = 0  # of this epoch: chains are counted from there
    cursor: int = 0  # chain of the next task
    chains: list[Chain] = field(init=False)
    seeds: list[bytes] = field(default_factory=list)  # of every epoch but the first
    num_dropped: int = 0  # answers of this epoch that never come: a chain is over, a sampler failed
    waiting: deque[Task] = field(default_factory=deque)  # drawn ahead, not yet due at home

    extras: set[Slot] = field(default_factory=set)  # of workers for free-standing tasks alone
    free: FreeTasks = field(default_factory=FreeTasks)
    fingerprint: bytes | None = None  # of the job at iter(); None while nobody asked
    has_asked_fingerprint: bool = False

    capacity: int = 0  # workers that other machines may have of this job
    crowd: tuple[Slot, ...] = ()  # slots there of workers that share a place
    num_local: int | None = None  # that this one may, while others help; None: all
    num_deaths_away: int = 0  # of workers for free-standing tasks, since the last answer of one
    story: deque[str] = field(default_factory=lambda: deque(maxlen=32))

    def __post_init__(self) -> None:
        self.chains = [
            Chain(number=number, is_iterable=self.is_iterable) for number in range(self.num_chains)
        ]
        # Out of order a batch may leave before a task of its chain that moves what it depends on.
        self.may_be_free = self.may_be_free and self.in_order and not self.is_iterable
        self.may_be_free = self.may_be_free and not self.is_stateful
        self.cursor = self.first_chain
        self.reorder = Reorder(0, self.in_order)

    # -- what is in flight -------------------------------------------------------------------

    @property
    def wants_index(self) -> bool:
        """Whether one more index list should be drawn now.

        torch sends one for each answer, and so none for a task that is never answered.
        """
        is_anybody_left = not self.is_iterable or any(not chain.is_over for chain in self.chains)
        return is_anybody_left and self.num_in_flight + self.num_dropped < self.window

    @property
    def window(self) -> int:
        """Limit of batches asked for and not yet taken: torch's own, more if tasks are free."""
        num_free = min(self.prefetch_factor * len(self.free.on), self.max_held)
        return max(self.prefetch_factor * self.num_chains, num_free)

    @property
    def num_in_flight(self) -> int:
        return self.next_id - self.reorder.next_id - self.reorder.num_left_early

    @property
    def is_exhausted(self) -> bool:
        """Whether everything drawn in this epoch has been taken."""
        return self.num_in_flight == 0

    @property
    def schedule_end(self) -> int:
        """Id below which torch would have sent all tasks by now."""
        num_taken = self.next_id - self.num_in_flight - self.num_dropped
        return num_taken + self.prefetch_factor * self.num_chains

    # -- who ---------------------------------------------------------------------------------

    @property
    def first_slots(self) -> list[Slot]:
        """Slots whose workers are started at once."""
        return [chain.first_slot for chain in self.chains]

    @property
    def local_extras(self) -> list[Slot]:
        """This machine's slots for free-standing tasks alone."""
        return [Slot(Role.EXTRA, index) for index in range(self.num_chains, self.num_slots)]

    @property
    def local_slots(self) -> list[Slot]:
        """All slots of workers on this machine, but the fingerprint process's."""
        return self.first_slots + self.local_extras

    @property
    def next_slot(self) -> Slot | None:
        """The slot that owes the batch that leaves next; None where any may come."""
        if not self.in_order:
            return None
        wanted = self.reorder.next_id
        for slot, tasks in self.free.on.items():
            if wanted in tasks:
                return slot
        if self.is_iterable:  # the round robin leaves out chains that are over
            return next((c.slot for c in self.chains if _is(c.oldest_owed, wanted)), None)
        return self.chains[(wanted - self.first_id + self.first_chain) % self.num_chains].slot

    @property
    def num_usable(self) -> int:
        """Workers that could be at work at once."""
        return sys.maxsize if self.phase in (Phase.ASKED, Phase.FREE) else self.num_chains

    def slot_of(self, chain: int) -> Slot:
        """Return the slot of a chain's worker; if asleep, of one that makes the chain's tasks."""
        is_asleep = self.chains[chain].where is Where.ASLEEP
        return next(iter(self.free.on)) if is_asleep else self.chains[chain].slot

    def chain_of(self, slot: Slot) -> Chain | None:
        """Return the chain of a slot's worker; None: for free tasks or the fingerprint only."""
        number = slot.chain
        return None if number is None else self.chains[number]

    def chain_that_owes(self, slot: Slot, task_id: int) -> Chain:
        """Return the chain that owes this task before all others. Raises BrokenGuarantee."""
        chain = self.chain_of(slot)
        if chain is None or not _is(chain.oldest_owed, task_id):
            owed = chain.owed if chain is not None else "nothing"
            raise self.broken(f"batch {task_id} from {slot!r}, which owes {owed}")
        return chain

    def owed_by(self, slot: Slot) -> list[int]:
        """Return the ids of the tasks that a slot's worker was sent and has not been heard to have done."""
        chain = self.chain_of(slot)
        owed = () if chain is None else chain.owed
        return [*self.free.on.get(slot, ()), *(task.id for task in owed)]

    def is_here(self, slot: Slot) -> bool:
        """Whether a slot's worker is on this machine."""
        chain = self.chain_of(slot)
        return slot.role is not Role.REMOTE if chain is None else not chain.is_away

    @property
    def num_chains_here(self) -> int:
        return sum(not chain.is_away for chain in self.chains)

    def is_owed_at_home(self, task: Task) -> bool:
        return any(task.id == owed.id for owed in self.chains[task.chain].owed)

    # -- the end -----------------------------------------------------------------------------

    def broken(self, what: str) -> BrokenGuarantee:
        """Return an error that tells what led to it."""
        return BrokenGuarantee(f"{what}; story: {' | '.join(self.story) or 'none'}")


def _is(task: Task | None, task_id: int) -> bool:
    return task is not None and task.id == task_id
