"""Tracks one chain: where its worker is, what it was asked, what a replacement must replay.

A map-style chain keeps its index lists since iter(). If its state was seen unmoved those before its
last Point are forgotten: a replacement goes on from there. The tasks of an iterable are all alike,
and what one gives depends on all before: it keeps how many were answered, epoch by epoch and by
whether they told a state, and a replacement fetches as many again; only those since its SavedPoint,
if it has one and that proves good.

Pure: no thread, clock, socket or torch.
"""

from dataclasses import dataclass, field
from enum import Enum

from stoker.scheduler.events import Action, Ask, Kill, Reload, Rerun, Resume, Start
from stoker.scheduler.tasks.plan import Task
from stoker.scheduler.tasks.point import Point, SavedPoint
from stoker.scheduler.tasks.slot import Exit, Role, Slot

# Whatever kills workers one after another may pass: 0.1, 0.2, 0.4 ... seconds, 9 for ten of them.
PAUSE_S, MAX_PAUSE_S = 0.1, 2.0


class Where(Enum):
    """Location of a chain's worker."""

    HERE = "on this machine"
    MOVING = "on this machine; goes to another at its next good Point"
    REMOTE = "on another machine"
    CHANGING = "on another machine; goes to a less crowded place at its next good Point"
    ASLEEP = "nowhere: the chain owes nothing, and others make its tasks"
    PINNED = "on this machine for good: on others its workers die"


AWAY = (Where.REMOTE, Where.CHANGING, Where.ASLEEP)


class Recovery(Enum):
    """Ways in which a replacement worker comes to where the one before it was."""

    REPLAY = "makes again what was made; from a Point where it can"
    RESUME = "goes on from the Point, or not at all: what was before is forgotten"
    RELOAD = "loads the iterable's saved state"
    RELOADING = "was sent the saved state, and has answered nothing yet"
    FULL_REPLAY = "makes everything again: a saved state did not prove good"
    HOPELESS = "there is none: nobody can make the chain's tasks"


@dataclass(slots=True, eq=False)
class _Alike:
    """Batches of an iterable that were fetched one after another."""

    wants_state: bool
    num: int = 0


@dataclass(slots=True, kw_only=True, eq=False)
class Chain:
    """One chain. slot: of its worker, the first one's unless a second was faster; is_iterable: its
    tasks are all alike."""

    number: int
    is_iterable: bool = False
    slot: Slot = field(init=False)
    second_slot: Slot | None = None  # of a second worker, which was asked for the same
    where: Where = Where.HERE
    recovery: Recovery = Recovery.REPLAY
    how_lost: Exit | str = ""  # how its last worker ended, where that is HOPELESS
    point: Point | None = None
    saved_point: SavedPoint | None = None  # of an iterable
    last_unwatched_id: int = -1  # its newest task whose answer need not carry a Point
    is_over: bool = False  # its iterable has ended; it gets no more tasks in this epoch
    num_in_vain: int = 0  # deaths that no task is to blame for, since its last answer
    num_machines_lost: int = 0  # under its workers, since its last answer
    num_deaths_away: int = 0  # of its workers on other machines, since its last answer
    nbytes: int = 0  # of index lists
    _tasks: list[Task] = field(default_factory=list)  # in order; of an iterable: what is owed
    _num_answered: int = 0  # of _tasks; the rest is owed
    _fetched: list[list[_Alike]] = field(default_factory=lambda: [[]])  # by epoch, of an iterable
    _num_saved: int = 0  # of _fetched: what the SavedPoint covers, all in the first epoch
    _body: bytes = b""  # of every task of an iterable

    def __post_init__(self) -> None:
        self.slot = self.first_slot

    # -- where it is -----------------------------------------------------------------------------

    @property
    def first_slot(self) -> Slot:
        """Slot of all its workers but a second one."""
        return Slot(Role.CHAIN, self.number)

    @property
    def is_away(self) -> bool:
        return self.where in AWAY

    @property
    def is_asleep(self) -> bool:
        return self.where is Where.ASLEEP

    @property
    def is_moving(self) -> bool:
        return self.where in (Where.MOVING, Where.CHANGING)

    def plan_to_move(self) -> None:
        """Have it move at its next good Point, unless it must stay or has no worker."""
        planned = {Where.HERE: Where.MOVING, Where.REMOTE: Where.CHANGING}
        self.where = planned.get(self.where, self.where)

    def stay_put(self) -> None:
        """Cancel a planned move."""
        stays = {Where.MOVING: Where.HERE, Where.CHANGING: Where.REMOTE}
        self.where = stays.get(self.where, self.where)

    def come_home(self) -> None:
        """Have its next worker start on this machine."""
        if self.is_away:
            self.where = Where.HERE

    def died_away(self, num_allowed: int) -> None:
        """Count an end of its worker on another machine; after so many it stays on this one."""
        self.num_deaths_away += 1
        if self.num_deaths_away >= num_allowed:
            self.where = Where.PINNED

    # -- what it owes ----------------------------------------------------------------------------

    @property
    def is_hopeless(self) -> bool:
        return self.recovery is Recovery.HOPELESS

    @property
    def has_forgotten(self) -> bool:
        """Whether its tasks begin after `point`, which a replacement must resume from."""
        return self.recovery is Recovery.RESUME

    def give_up(self, how: Exit | str) -> None:
        """Give up the chain: no worker can make its tasks. how: its last worker ended."""
        self.recovery, self.how_lost = Recovery.HOPELESS, how

    @property
    def owed(self) -> list[Task]:
        return self._tasks[self._num_answered :]

    @property
    def num_owed(self) -> int:
        return len(self._tasks) - self._num_answered

    @property
    def oldest_owed(self) -> Task | None:
        return self._tasks[self._num_answered] if self.num_owed else None

    def asked(self, task: Task) -> None:
        self._tasks.append(task)
        self.nbytes += len(task.body)

    def answered(self) -> None:
        """Note that its oldest owed task was answered."""
        self.num_in_vain = self.num_machines_lost = self.num_deaths_away = 0
        if self.recovery is Recovery.RELOADING:
            self.recovery = Recovery.RELOAD
        if self.is_iterable:
            task = self._tasks.pop(0)
            self._body = task.body
            self._count(task)
            self.nbytes -= len(task.body)
        else:
            self._num_answered += 1

    def ended(self, epoch: int) -> list[Task]:
        """Note that its iterable ended at its oldest owed task. epoch: the present one.

        Returns the later tasks of the same epoch: they never come.
        """
        ended = self._tasks[0]
        self.answered()
        self.is_over = ended.epoch == epoch
        dropped = [task for task in self._tasks if task.epoch == ended.epoch]
        del self._tasks[: len(dropped)]
        self.nbytes = sum(len(task.body) for task in self._tasks)
        return dropped

    def _count(self, task: Task) -> None:
        while len(self._fetched) <= task.epoch:
            self._fetched.append([])
        epoch = self._fetched[task.epoch]
        if not epoch or epoch[-1].wants_state != task.wants_state:
            epoch.append(_Alike(task.wants_state))
        epoch[-1].num += 1

    def saved(self, point: SavedPoint) -> None:
        """Keep its iterable's saved state, and the whole count too: the state may prove wrong."""
        if self.recovery is Recovery.REPLAY:
            self.recovery = Recovery.RELOAD
        if self.recovery in (Recovery.RELOAD, Recovery.RELOADING):
            self.saved_point, self._num_saved = point, self._num_fetched

    def distrust(self) -> None:
        """Drop its saved state, which did not prove good; none is used any more."""
        self.saved_point, self._num_saved, self.recovery = None, 0, Recovery.FULL_REPLAY

    @property
    def _num_fetched(self) -> int:
        return sum(alike.num for epoch in self._fetched for alike in epoch)

    def forget_covered(self, fingerprint: bytes | None) -> None:
        """Drop the tasks that a replacement would not run again, if it will accept the point: the
        job's fingerprint was the same at iter()."""
        if self.point is None or self.point.fingerprint != fingerprint:
            return
        kept = [task for task in self._tasks if task.id > self.point.task_id]
        self._num_answered -= len(self._tasks) - len(kept)
        if not self.is_hopeless:
            self.recovery = Recovery.RESUME
        self._tasks = kept
        self.nbytes = sum(len(task.body) for task in kept)

    def keep_point(self, point: Point, fingerprint: bytes | None) -> None:
        """Keep a point for a replacement. One whose fingerprint has changed is kept only if no task
        has been forgotten."""
        if point.fingerprint != fingerprint:
            self.stay_put()
        if not self.has_forgotten or point.fingerprint == fingerprint:
            self.point = point
            self.forget_covered(fingerprint)

    # -- a replacement, or a second worker --------------------------------------------------------

    def settle(self, slot: Slot) -> list[Action]:
        """Go on with this one of its two workers; no actions if it has only one."""
        if self.second_slot is None:
            return []
        other = self.slot if slot == self.second_slot else self.second_slot
        if slot == self.second_slot:
            self.where = Where.REMOTE
        self.slot, self.second_slot = slot, None
        return [Kill(other)]

    def num_to_replay(self) -> int:
        """Return how many answered tasks a replacement will run again."""
        if self.is_iterable:
            num_proofs = 0 if self.saved_point is None else len(self.saved_point.proofs)
            return self._num_fetched - self._num_saved + num_proofs
        covered = -1 if self.point is None else self.point.task_id
        return sum(task.id > covered for task in self._tasks[: self._num_answered])

    def replay(self, seeds: list[bytes]) -> list[Action]:
        """Start a worker and have it make what is owed, after what was made. seeds: see Resume."""
        self.slot = self.first_slot
        if self.is_iterable:
            start = Start(self.slot, away=self.is_away, after_s=self._pause_s)
            return [start, *self._replay_epochs(seeds)]
        return self.replay_at(self.slot, seeds, self.is_away)

    @property
    def _pause_s(self) -> float:
        """Backoff before its next worker: longer with each that died in vain, 0 for the first."""
        num_more = self.num_in_vain - 1
        return min(PAUSE_S * 2 ** (num_more - 1), MAX_PAUSE_S) if num_more > 0 else 0.0

    def replay_at(self, slot: Slot, seeds: list[bytes], away: bool) -> list[Action]:
        """Do as `replay` for a map-style chain, in this slot."""
        actions: list[Action] = [Start(slot, self.point, away=away, after_s=self._pause_s)]
        epoch = 0
        for k, task in enumerate(self._tasks):
            actions += (Resume(slot, seed) for seed in seeds[epoch : task.epoch])
            epoch = max(epoch, task.epoch)
            if k < self._num_answered:
                actions.append(Ask(slot, task, quiet=True))
            else:
                watch = task.id > self.last_unwatched_id
                actions.append(Ask(slot, task, watch=watch))
        return actions + [Resume(slot, seed) for seed in seeds[epoch:]]

    def _replay_epochs(self, seeds: list[bytes]) -> list[Action]:
        actions: list[Action] = []
        num_saved = self._num_saved
        if self.saved_point is not None:
            actions.append(Reload(self.slot, self.saved_point, self._body))
            self.recovery = Recovery.RELOADING
        for epoch in range(len(seeds) + 1):
            if epoch:
                actions.append(Resume(self.slot, seeds[epoch - 1]))
            for alike in self._fetched[epoch] if epoch < len(self._fetched) else ():
                num = alike.num - num_saved  # what has a SavedPoint tells no state: all are alike
                num_saved = 0
                actions.append(Rerun(self.slot, num, self._body, alike.wants_state))
            actions += [Ask(self.slot, task) for task in self._tasks if task.epoch == epoch]
        return actions
