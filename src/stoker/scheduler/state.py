"""The only place that decides what a stream does next: step(event) -> actions.

    HOME   every task runs on its own chain's worker, in the chain's order        (rungs 1 to 4)
    ASKED  the chains seem to draw nothing: further workers were started, to tell the state at
           iter(), and every task at home is watched from now on
    FREE   tasks stand alone: any worker takes any task, beyond V                      (rung 5)
    BARRED a task drew or something moved: home for good, and what was made elsewhere counts only
           where the home worker could not have made it otherwise

Promise: a chain's tasks run at home in order, each at most once per life of its worker, and
never earlier than torch would have sent them; a result is taken once. An unknown pair of phase
and event raises BrokenGuarantee with the story so far.
The state is changed in place: a copy per batch would cost more than the batch.
Pure: no thread, clock, socket or torch.
"""

import itertools
import sys
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from stoker.errors import BrokenGuarantee
from stoker.order.chain import SECOND, chain_of
from stoker.order.plan import Task
from stoker.order.reorder import Reorder
from stoker.scheduler.events import (
    Action,
    Arrived,
    Ask,
    Astray,
    Closed,
    Drawn,
    Ended,
    Event,
    Finish,
    GiveUp,
    Greeted,
    Kill,
    Late,
    Lost,
    Offered,
    Refused,
    Restarted,
    Resume,
    Start,
    Watched,
)
from stoker.scheduler.free import FreeTasks
from stoker.scheduler.history import Chain

# A free task costs a look at the job's state and this much for the generators; it must be small
# beside the task. Measured: tests/unit/purity/test_fingerprint.py prints both.
FREE_COST_S = 0.0003
FREE_COST_FRAC = 0.05
# A history this long is worth a process that tells the fingerprint at iter(), so that what a
# point covers can be forgotten: about two epochs of ImageNet.
LONG_HISTORY_NBYTES = 8 << 20
# In place of an exit: the world changed, and a worker cannot be brought to where it was.
BEYOND_HELP = "its worker could not be brought back to where it was"
MAX_DEATHS = 3  # of workers while they made one task; then the task is to blame
# Of a chain's workers one after another, none of which gave a batch: killed while they start, make
# again what was made, or are idle. Chain pauses longer before each.
MAX_IN_VAIN = 10
MAX_OURS_IN_VAIN = 2  # where stoker failed: it would once more
# A second worker's start: a fork, its greeting and a round trip. Measured: tests/process/test_away.py
START_COST_S = 0.05
# Of them on other machines: what they lack this one may have, so the last try is here.
MAX_DEATHS_AWAY = MAX_DEATHS - 1


class Phase(Enum):
    HOME = "home"
    ASKED = "asked"
    FREE = "free"
    BARRED = "barred"
    CLOSED = "closed"


@dataclass(slots=True, kw_only=True)
class Stream:
    """num_slots: workers that free-standing tasks may use; may_run_ahead: indices may be drawn
    earlier than torch would; may_be_free: rung 5 is open to this job at all; is_iterable: a
    chain's tasks are all alike, and it may end before others; is_stateful: what was drawn ahead is
    part of a state that the script can see, and workers hear of every epoch; first_chain: the one
    that the first epoch begins with; persistent: workers outlive an iterable; max_deaths: of workers
    on one task, before it is given up; 1: none can be replaced; may_hedge: a batch that is late may
    be asked of a second worker; max_held: batches that memory has room for, beyond torch's own."""

    num_chains: int
    prefetch_factor: int
    in_order: bool = True
    num_slots: int = 1
    may_be_free: bool = False
    is_iterable: bool = False
    is_stateful: bool = False
    first_chain: int = 0
    persistent: bool = False
    max_deaths: int = MAX_DEATHS
    phase: Phase = Phase.HOME
    why_barred: str = ""
    why_not_away: str = ""  # an Ahead's
    num_lost: int = 0
    num_replayed: int = 0
    num_hedged: int = 0
    may_hedge: bool = False
    max_held: int = sys.maxsize
    reorder: Reorder[Any] = field(init=False)
    _next_id: int = 0
    _first_id: int = 0  # of this epoch: chains are counted from there
    _cursor: int = 0  # chain of the next task
    _chains: list[Chain] = field(init=False)
    _seeds: list[bytes] = field(default_factory=list)  # of every epoch but the first
    _num_dropped: int = 0  # tasks of this epoch that their chains, being over, never answer
    _waiting: deque[Task] = field(default_factory=deque)  # drawn ahead, not yet due at home
    _extras: set[int] = field(default_factory=set)  # slots beyond V that were started
    _free: FreeTasks = field(default_factory=FreeTasks)
    _fingerprint: bytes | None = None  # of the job at iter(); None while nobody asked
    _has_asked: bool = False
    num_places: int = 0  # workers that other machines may have of this job
    _crowd: tuple[int, ...] = ()  # slots there of workers that share a place
    _num_local: int | None = None  # that this one may, while others help; None: all
    _num_deaths_away: int = 0  # of workers for free-standing tasks, since the last answer of one
    _story: deque[str] = field(default_factory=lambda: deque(maxlen=32))

    def __post_init__(self) -> None:
        self._chains = [
            Chain(number=number, is_iterable=self.is_iterable) for number in range(self.num_chains)
        ]
        # Out of order a batch may leave before a task of its chain that moves what it depends on.
        self.may_be_free = self.may_be_free and self.in_order and not self.is_iterable
        self.may_be_free = self.may_be_free and not self.is_stateful
        self._cursor = self.first_chain
        self.reorder = Reorder(0, self.in_order)

    # -- questions ---------------------------------------------------------------------------

    @property
    def witness_slot(self) -> int:
        """One slot beyond all others, for a process that only tells the job's fingerprint."""
        return self.num_slots

    @property
    def wants_index(self) -> bool:
        """Whether one more index list should be drawn now.

        torch sends one for each answer, and so none for a task that is never answered.
        """
        is_anybody_left = not self.is_iterable or any(not chain.is_over for chain in self._chains)
        return is_anybody_left and self._num_in_flight + self._num_dropped < self.window

    @property
    def window(self) -> int:
        """Batches asked for and not yet taken: torch's own number, more where tasks are free."""
        num_free = min(self.prefetch_factor * len(self._free.on), self.max_held)
        return max(self.prefetch_factor * self.num_chains, num_free)

    @property
    def is_exhausted(self) -> bool:
        """Whether everything drawn in this epoch has been taken."""
        return self._num_in_flight == 0

    @property
    def next_slot(self) -> int | None:
        """The slot that owes the batch that leaves next; None where any may come."""
        if not self.in_order:
            return None
        wanted = self.reorder.next_id
        for slot, tasks in self._free.on.items():
            if wanted in tasks:
                return slot
        if self.is_iterable:  # the round robin leaves out chains that are over
            return next((c.slot for c in self._chains if _is(c.oldest_owed, wanted)), None)
        return self._chains[(wanted - self._first_id + self.first_chain) % self.num_chains].slot

    @property
    def num_usable(self) -> int:
        """Workers that could be at work at once."""
        return sys.maxsize if self.phase in (Phase.ASKED, Phase.FREE) else self.num_chains

    def slot_of(self, chain: int) -> int:
        """Where a chain's worker is; of one that is asleep, a worker that makes its tasks."""
        asleep = self._chains[chain].is_asleep
        return next(iter(self._free.on)) if asleep else self._chains[chain].slot

    @property
    def _num_in_flight(self) -> int:
        return self._next_id - self.reorder.next_id - self.reorder.num_left_early

    # -- the step ----------------------------------------------------------------------------

    def step(self, event: Event) -> list[Action]:
        """What to do about an event. Raises BrokenGuarantee on what cannot be."""
        match event:
            case _ if self.phase is Phase.CLOSED:
                return []  # late news after close is normal
            case Arrived(slot, task_id, batch, free):
                return self._arrived(slot, task_id, batch, free)
            case Drawn(body, wants_state):
                return self._drawn(body, wants_state)
            case Ended(slot, task_id):
                return self._tell(event, self._ended(slot, task_id))
            case Watched(chain, point):
                return self._tell(event, self._watched(chain, point))
            case Greeted(slot, fingerprint, resumed):
                return self._tell(event, self._greeted(slot, fingerprint, resumed))
            case Refused(slot, task_id, why):
                return self._tell(event, self._refused(slot, task_id, why))
            case Astray(slot):
                return self._tell(event, self._astray(slot))
            case Lost(slot, how, was_given_back, begun, is_ours):
                self.num_lost += slot != self.witness_slot and not was_given_back
                return self._tell(event, self._lost(slot, how, begun, is_ours))
            case Offered(num_places, num_local, fingerprint, crowd):
                return self._tell(event, self._offered(num_places, num_local, fingerprint, crowd))
            case Late(slot, task_id, late_s, task_s):
                return self._tell(event, self._late(slot, task_id, late_s, task_s))
            case Restarted(seed):
                return self._tell(event, self._restarted(seed))
            case Closed():
                self.phase = Phase.CLOSED
                return []
        raise self._broken(f"{event!r} while {self.phase.name}")

    def taken(self, task_id: int) -> list[Action]:
        """A batch has left: what was drawn ahead may be due now."""
        self._free.taken(task_id)
        return self._send_due() if self._waiting else []

    def _drawn(self, body: bytes, wants_state: bool) -> list[Action]:
        task = Task(
            self._next_id,
            self._pick_chain(),
            body,
            epoch=len(self._seeds),
            wants_state=wants_state,
        )
        self._next_id += 1
        if self.phase is Phase.FREE:
            return [self._ask_free(task)]
        self._waiting.append(task)
        return self._send_due()

    def _pick_chain(self) -> int:
        """torch's round robin over those that are not over; out of order it skips workers that
        have enough to do.

        Source: torch/utils/data/dataloader.py `_try_put_index`, 2.13.
        """
        num_enough = sys.maxsize
        if not self.in_order:
            num_living = sum(not chain.is_over for chain in self._chains)
            num_enough = self.prefetch_factor * self.num_chains // num_living
        picked = 0
        for _ in range(self.num_chains):
            chain = self._chains[self._cursor]
            self._cursor = (self._cursor + 1) % self.num_chains
            if chain.is_over:
                continue
            picked = chain.number
            if chain.num_owed < num_enough:
                break
        return picked

    def _send_due(self) -> list[Action]:
        """Send what torch would have sent by now."""
        due: list[Action] = []
        while self._waiting and self._waiting[0].id < self._schedule_end:
            due += self._ask_home(self._waiting.popleft())
        return due

    @property
    def _schedule_end(self) -> int:
        """torch would have sent the tasks below this id by now."""
        num_taken = self._next_id - self._num_in_flight - self._num_dropped
        return num_taken + self.prefetch_factor * self.num_chains

    def _ask_home(self, task: Task) -> list[Action]:
        chain = self._chains[task.chain]
        if chain.how_lost is not None:
            return [_give_up(task, chain)]
        chain.asked(task)
        watch = self.phase is Phase.ASKED or chain.is_moving
        if not watch:
            chain.last_unwatched_id = task.id
        slots = (chain.slot,) if chain.second_slot is None else (chain.slot, chain.second_slot)
        return [Ask(slot, task, watch=watch) for slot in slots]

    def _ask_free(self, task: Task) -> Ask:
        slots = self._free_slots()
        if task.num_deaths >= MAX_DEATHS_AWAY:
            slots = [slot for slot in self._free.on if self._is_here(slot)] or slots
        return Ask(self._free.ask(task, slots), task, free=True)

    def _arrived(self, slot: int, task_id: int, batch: Any, free: bool) -> list[Action]:
        actions: list[Action] = []
        if free:
            if not self._free.answered(slot, task_id):
                return []  # it crossed with the bar, or another was first
            chain = self._chain_of(slot)
            if chain is not None:
                chain.num_in_vain = chain.num_deaths_away = 0
            elif slot > self.witness_slot:
                self._num_deaths_away = 0
        else:
            chain = self._home_chain(slot, task_id)
            chain.answered()
            self._free.made_at_home(slot, task_id)
            actions += self._settle(chain, slot)
            if slot in self._crowd and not chain.num_owed:
                actions += self._dismiss([slot]) + self._hire()
        if task_id >= self._first_id:
            self.reorder.hold(task_id, batch)
        return actions

    def _chain_of(self, slot: int) -> Chain | None:
        """Whose worker a slot's is; None: it takes free-standing tasks only, or is the witness."""
        number = chain_of(slot)
        return self._chains[number] if number < self.num_chains else None

    def _home_chain(self, slot: int, task_id: int) -> Chain:
        """The chain that owes this task before all others. Raises BrokenGuarantee."""
        chain = self._chain_of(slot)
        if chain is None or not _is(chain.oldest_owed, task_id):
            owed = chain.owed if chain is not None else "nothing"
            raise self._broken(f"batch {task_id} from slot {slot}, which owes {owed}")
        return chain

    def _ended(self, slot: int, task_id: int) -> list[Action]:
        """torch skips what a worker owes beyond its end, and lets it go if it has no next epoch."""
        chain = self._home_chain(slot, task_id)
        dropped = chain.ended(len(self._seeds))
        for never in (task_id, *(task.id for task in dropped)):
            if never >= self._first_id:
                self.reorder.skip(never)
        self._num_dropped += sum(task.id >= self._first_id for task in dropped)
        return [] if self.persistent else [Finish(slot)]

    def _lost(self, slot: int, how: Any, begun: int | None, is_ours: bool) -> list[Action]:
        if slot == self.witness_slot:
            return []  # then histories stay whole
        chain = self._chain_of(slot)
        if chain is not None and chain.second_slot is not None:
            return self._settle(chain, chain.second_slot if slot == chain.slot else chain.slot)
        orphans = self._close_free(slot)
        guilty = orphans[:1] if begun is None else [t for t in orphans if t.id == begun]
        hopeless = [task for task in guilty if how is not None and self._blame(task)]
        orphans = [task for task in orphans if task not in hopeless]
        actions: list[Action] = [GiveUp(task, how) for task in hopeless]
        if chain is not None and how is None and self._may_sleep(chain):
            chain.is_asleep = True
            actions += self._hire()
        elif chain is not None:
            actions += self._revive(chain, how, begun, is_ours)
            if self.phase is Phase.FREE and chain.how_lost is None:
                self._free.on[chain.slot] = {}
        self._extras.discard(slot)
        if chain is None and slot > self.witness_slot:
            self._num_deaths_away += how is not None
            actions += self._hire()
        elif self.num_chains <= slot < self.num_slots and not self._extras:
            return actions + self._bar("its further workers died", orphans)
        if self.phase is Phase.FREE and self._free.on:
            return actions + [self._ask_free(task) for task in orphans]
        if orphans or self.phase is Phase.FREE:  # barred just now, or to be: nobody is left
            return actions + self._bar(self.why_barred or "all its workers died", orphans)
        return actions

    def _astray(self, slot: int) -> list[Action]:
        self._chains[slot].distrust()
        return self._clean(self._chains[slot])

    def _blame(self, task: Task) -> bool:
        """Count one more death against the task that was at work; whether it is one too many."""
        task.num_deaths += 1
        return task.num_deaths >= self.max_deaths

    def _revive(
        self, chain: Chain, how: Any, begun: int | None = None, is_ours: bool = False
    ) -> list[Action]:
        """Start a chain's worker again and have it make what it made; how: None if we ended it."""
        if chain.is_reloading:  # to load it may be what killed it
            chain.distrust()
        if how is not None and self._is_hopeless(chain, begun, is_ours):
            chain.how_lost = how
            return [_give_up(task, chain) for task in chain.owed]
        if how is not None and chain.is_away:
            chain.died_away(MAX_DEATHS_AWAY)
        chain.num_machines_lost += how is None and chain.is_away
        num_here = sum(not other.is_away for other in self._chains)
        if chain.num_machines_lost >= MAX_DEATHS or num_here < self._num_to_keep:
            chain.is_away = False
        self.num_replayed += chain.num_to_replay()
        return chain.replay(self._seeds)

    def _is_hopeless(self, chain: Chain, begun: int | None, is_ours: bool) -> bool:
        """Count one more death, against the task that was being made or else the chain."""
        task = chain.oldest_owed
        if task is not None and begun in (None, task.id):
            return self._blame(task)
        chain.num_in_vain += 1
        most = MAX_OURS_IN_VAIN if is_ours else MAX_IN_VAIN
        return chain.num_in_vain >= most or self.max_deaths == 1

    def _restarted(self, seed: bytes) -> list[Action]:
        """Owed tasks are still made, for they move the generators, and then dropped.

        Not those that torch would not have sent yet: free ones leave no trace, so they are
        merely no longer owed to anybody.
        """
        self._free.restart(self._schedule_end)
        self._waiting.clear()
        self._first_id = self._next_id
        self._cursor = self.first_chain = 0
        self.reorder = Reorder(self._next_id, self.in_order)
        if not (self.is_iterable or self.is_stateful):
            return []
        self._seeds.append(seed)
        self._num_dropped = 0
        for chain in self._chains:
            chain.is_over = False
        return [Resume(chain.number, seed) for chain in self._chains if chain.how_lost is None]

    # -- rung 5: tasks that stand alone -----------------------------------------------------------

    def _watched(self, number: int, point: Any) -> list[Action]:
        chain = self._chains[number]
        if self.is_iterable:
            chain.saved(point)
            return []
        may_move = self.phase in (Phase.HOME, Phase.BARRED)  # in FREE its worker owes others' tasks
        if chain.is_moving and may_move and point.fingerprint == self._fingerprint:
            chain.point = point
            self._forget_covered(chain)
            if not chain.num_to_replay():
                return self._move(chain)
        chain.is_moving = chain.is_moving and point.fingerprint == self._fingerprint
        if not chain.has_forgotten or point.fingerprint == self._fingerprint:
            chain.point = point  # else the older one stays: what it covers is no longer known
            self._forget_covered(chain)
        if self.phase in (Phase.ASKED, Phase.FREE):
            if point.drew:
                return self._bar("it draws random numbers")
            if self._fingerprint not in (None, point.fingerprint):
                return self._bar("its state moves", moved=(number, point.task_id))
            return self._try_free()
        is_long = chain.nbytes > LONG_HISTORY_NBYTES and self.max_deaths > 1
        if is_long and not self._has_asked:
            self._has_asked = True
            return [Start(self.witness_slot, must_greet=True)]
        return self._ask_extras(point) if self.phase is Phase.HOME and self.may_be_free else []

    def _ask_extras(self, point: Any) -> list[Action]:
        if point.drew:
            return self._bar("it draws random numbers")
        if point.watch_s + FREE_COST_S > FREE_COST_FRAC * point.task_s:
            return []  # looking after each task whether it left a trace would cost too much
        self.phase = Phase.ASKED
        self._extras = set(range(self.num_chains, self.num_slots))
        actions = [act for chain in self._chains for act in self._settle(chain, chain.slot)]
        actions += [Start(slot, must_greet=True) for slot in sorted(self._extras)]
        return actions + self._hire()

    def _greeted(self, slot: int, fingerprint: bytes, resumed: bool) -> list[Action]:
        chain = self._chain_of(slot)
        if chain is not None:
            return self._check_resumed(chain, slot, resumed)
        if slot != self.witness_slot and self.phase not in (Phase.ASKED, Phase.FREE):
            return []  # it is being killed
        if slot > self.witness_slot and fingerprint != self._fingerprint:
            return self._dismiss([slot])
        if not fingerprint:
            return [Kill(slot)] if slot == self.witness_slot else self._bar("it cannot be watched")
        if self._fingerprint not in (None, fingerprint):
            return self._bar("it looks different in every process")
        self._fingerprint = fingerprint
        for chain in self._chains:
            self._forget_covered(chain)
        return [Kill(slot)] if slot == self.witness_slot else self._try_free()

    def _check_resumed(self, chain: Chain, slot: int, resumed: bool) -> list[Action]:
        """A chain whose past is forgotten must go on from its point, or it cannot go on."""
        if resumed or not chain.has_forgotten:
            return []
        if slot == chain.second_slot:
            return self._settle(chain, chain.slot)
        if chain.is_away:  # that machine is unlike this one after all
            chain.is_away = False
            return self._clean(chain)
        chain.how_lost = chain.how_lost or BEYOND_HELP
        actions: list[Action] = [_give_up(task, chain) for task in chain.owed]
        return [Kill(slot), *actions, *self._ask_again(self._close_free(slot))]

    def _try_free(self) -> list[Action]:
        """FREE once every chain was seen unmoved after its last unwatched task."""
        if self.phase is not Phase.ASKED or self._fingerprint is None:
            return []
        if any(chain.second_slot is not None for chain in self._chains):
            return []  # which of the two goes on is not known yet
        for number, chain in enumerate(self._chains):
            if chain.how_lost is not None or chain.point is None:
                return []
            if chain.point.task_id < chain.last_unwatched_id:
                return []
            if chain.point.fingerprint != self._fingerprint:
                return self._bar("its state moves", moved=(number, chain.point.task_id))
        self.phase = Phase.FREE
        self._free = FreeTasks([*(c.slot for c in self._chains), *sorted(self._extras)])
        return self._dismiss(self._crowd) + self._hire()

    def _forget_covered(self, chain: Chain) -> None:
        if chain.point is not None and chain.point.fingerprint == self._fingerprint:
            chain.forget_covered()

    def _refused(self, slot: int, task_id: int, why: str) -> list[Action]:
        task = self._free.let_go(slot, task_id)
        if task is None:  # it crossed with the bar, or with a restart that let the task go
            chain = self._chain_of(slot)
            return [] if chain is None else self._clean(chain)
        if why == "drew":
            return self._bar("it draws random numbers", [task], dirty=slot)
        return self._bar("its state moves", [task], moved=(task.chain, task_id), dirty=slot)

    def _bar(
        self,
        why: str,
        more: list[Task] | None = None,
        *,
        moved: tuple[int, int] | None = None,
        dirty: int | None = None,
    ) -> list[Action]:
        """Home for good. Free tasks not yet answered, and `more`, run at home when they are due.

        moved: the chain whose state a task moves, and that task. dirty: a slot whose worker ran a
        task that was none of its own. What was made elsewhere of a chain's later tasks than that
        one, or than one that is yet to run at home and may move it too, did not see it, and is
        made again. It has not left, for the earlier task itself has not; or that was made by a
        second worker as well, which saw that it moves nothing.
        """
        owed, held = self._free.end()
        owed += more or ()
        at_home = [task for chain in self._chains for task in chain.owed]
        first = {} if moved is None else dict([moved])
        for task in (*owed, *at_home):
            first[task.chain] = min(first.get(task.chain, task.id), task.id)
        stale = [t for t in held if t.id > first.get(t.chain, t.id)]
        for task in stale:
            self.reorder.drop(task.id)
        ids_at_home = {task.id for task in at_home}
        owed = [task for task in (*owed, *stale) if task.id not in ids_at_home]
        actions: list[Action] = [Kill(slot) for slot in sorted(self._extras)]
        self.phase, self.why_barred = Phase.BARRED, why
        self._extras = set()
        if dirty is not None and (dirtied := self._chain_of(dirty)) is not None:
            actions += self._clean(dirtied)
        for chain in self._chains:
            actions += self._wake(chain)
        self._waiting = deque(sorted([*owed, *self._waiting], key=lambda task: task.id))
        return actions + self._send_away() + self._send_due()

    def _clean(self, chain: Chain) -> list[Action]:
        """Replace a home worker whose state is not its chain's."""
        owed = self._free.on.pop(chain.slot, None)
        actions = [*self._settle(chain, chain.slot), Kill(chain.slot), *self._revive(chain, None)]
        if owed is not None:
            self._free.on[chain.slot] = owed
            actions += [Ask(chain.slot, task, free=True) for task in owed.values()]
        return actions

    # -- other machines -----------------------------------------------------------------------------

    def _offered(
        self, num_places: int, num_local: int, fingerprint: bytes, crowd: tuple[int, ...]
    ) -> list[Action]:
        """Places came or went, or the training loop leaves this machine more cores, or fewer."""
        self.num_places, self._num_local, self._crowd = num_places, num_local, crowd
        self._fingerprint = self._fingerprint or fingerprint
        if self._fingerprint != fingerprint:  # seen to differ between forks of one process
            self.num_places = 0
            return []
        for chain in self._chains:
            self._forget_covered(chain)
        if self.phase in (Phase.ASKED, Phase.FREE):
            actions = [] if num_places else [a for c in self._chains for a in self._wake(c)]
            return actions + self._dismiss(self._crowd) + self._hire()
        for chain in filter(None, map(self._chain_of, crowd)):
            chain.is_moving = not self.is_iterable
        return self._send_away()

    def _send_away(self) -> list[Action]:
        """Have chains move where there are more places than here: at once those that lose nothing
        by it, others at their next Point, if that is good on any machine."""
        here = [chain for chain in self._chains if not chain.is_away and chain.how_lost is None]
        num_to_go = len(here) - self._num_to_keep
        here = [chain for chain in here if not chain.must_stay]
        actions: list[Action] = []
        for chain in here[::-1][: max(num_to_go, 0)]:
            if not chain.num_to_replay() and not chain.is_over:
                actions += self._move(chain)
            else:
                chain.is_moving = not self.is_iterable
        return actions

    @property
    def _num_to_keep(self) -> int:
        """Chains for this machine: its share of all that may work at once."""
        if not self.num_places or self._num_local is None:
            return self.num_chains
        num_slots = self._num_local + self.num_places
        return min(self._num_local, round(self.num_chains * self._num_local / num_slots))

    def _move(self, chain: Chain) -> list[Action]:
        chain.is_moving = False
        if not self.num_places:
            return []
        chain.is_away = True
        actions = [*self._settle(chain, chain.slot), Kill(chain.slot)]
        return actions + chain.replay(self._seeds)

    def _hire(self) -> list[Action]:
        """A worker for each place, chains' own among them: two would but share a CPU."""
        if self.phase not in (Phase.ASKED, Phase.FREE):
            return []
        if self._num_deaths_away >= MAX_DEATHS:  # with no answer between them: they all would
            return []
        first = self.witness_slot + 1
        num_away = sum(slot >= first for slot in self._extras)
        num_away += sum(chain.is_away and not chain.is_asleep for chain in self._chains)
        wanted = (slot for slot in itertools.count(first) if slot not in self._extras)
        actions: list[Action] = []
        for slot in itertools.islice(wanted, max(self.num_places - num_away, 0)):
            self._extras.add(slot)
            actions.append(Start(slot, must_greet=True, away=True))
            if self.phase is Phase.FREE:
                self._free.on[slot] = {}
        return actions

    def _dismiss(self, slots: Iterable[int]) -> list[Action]:
        """Workers that free-standing tasks can do without."""
        actions: list[Action] = []
        orphans: list[Task] = []
        for slot in slots:
            chain = self._chain_of(slot)
            if slot in self._extras:
                self._extras.discard(slot)
            elif chain is not None and slot == chain.slot and self._may_sleep(chain):
                chain.is_asleep = True
            else:
                continue
            actions.append(Kill(slot))
            orphans += self._close_free(slot)
        return actions + self._ask_again(orphans)

    def _ask_again(self, orphans: list[Task]) -> list[Action]:
        """Free-standing tasks of workers that are no more."""
        if self.phase is Phase.FREE and not self._free.on:
            return self._bar("all its workers died", orphans)
        return [self._ask_free(task) for task in orphans]

    def _may_sleep(self, chain: Chain) -> bool:
        """Whether its tasks are made without a worker of its own, and better so."""
        is_needed = chain.num_owed or not any(slot != chain.slot for slot in self._free.on)
        num_here = sum(not other.is_away for other in self._chains)
        has_place = self.num_places > 0 and num_here >= self._num_to_keep
        return self.phase is Phase.FREE and chain.is_away and has_place and not is_needed

    def _wake(self, chain: Chain) -> list[Action]:
        if not chain.is_asleep:
            return []
        chain.is_asleep = False
        chain.is_away = chain.is_away and self.num_places > 0
        self.num_replayed += chain.num_to_replay()
        if self.phase is Phase.FREE:
            self._free.on[chain.number] = {}
        return chain.replay(self._seeds)

    def _free_slots(self) -> list[int]:
        """Where free-standing tasks may go: where others help, only some of this machine's."""
        if not self.num_places or self._num_local is None:
            return list(self._free.on)
        here = [slot for slot in self._free.on if self._is_here(slot)]
        spared = set(here[self._num_local :])
        return [slot for slot in self._free.on if slot not in spared] or list(self._free.on)

    def _is_here(self, slot: int) -> bool:
        chain = self._chain_of(slot)
        return slot < self.witness_slot if chain is None else not chain.is_away

    # -- second workers ------------------------------------------------------------------------------

    def _late(self, slot: int, task_id: int, late_s: float, task_s: float) -> list[Action]:
        """Ask a second worker for the batch that leaves next: any for one that stands alone, else
        one on another machine."""
        if not self.num_places or not self.may_hedge:
            return []
        chain = self._chain_of(slot)
        if self.phase is Phase.FREE:
            at_home = [] if chain is None else chain.owed  # since before tasks were free
            asked = [*self._free.on.get(slot, {}).values(), *at_home]
            task = next((task for task in asked if task.id == task_id), None)
            others = [other for other in self._free_slots() if other != slot]
            if task is None or not others or self._num_asked(task) > 1:
                return []
            self.num_hedged += 1
            self._free.late.add(slot)
            return [Ask(self._free.ask(task, others), task, free=True)]
        if chain is None:
            return []
        # What it covers is forgotten only where the state at iter() was seen not to move.
        is_portable = (
            chain.has_forgotten
            and not self.is_stateful
            and chain.point.fingerprint == self._fingerprint
        )
        cost_s = (chain.num_to_replay() + 1) * task_s + START_COST_S
        if not is_portable or chain.second_slot is not None or late_s < cost_s:
            return []
        self.num_hedged += 1
        second = chain.second_slot = chain.number + SECOND * (chain.slot < SECOND)
        return chain.replay_at(second, self._seeds, away=True)

    def _num_asked(self, task: Task) -> int:
        """Workers that owe a task, its chain's own among them."""
        return len(self._free.owed(task.id)) + self._is_owed_at_home(task)

    def _is_owed_at_home(self, task: Task) -> bool:
        return any(task.id == owed.id for owed in self._chains[task.chain].owed)

    def _close_free(self, slot: int) -> list[Task]:
        """A slot is no more. The free-standing tasks that nobody owes now."""
        return [task for task in self._free.close(slot) if not self._is_owed_at_home(task)]

    def _settle(self, chain: Chain, slot: int) -> list[Action]:
        """Of a chain's two workers this one goes on."""
        if chain.second_slot is None:
            return []
        other = chain.slot if slot == chain.second_slot else chain.second_slot
        chain.is_away = chain.is_away or slot == chain.second_slot
        chain.slot, chain.second_slot = slot, None
        return [Kill(other)]

    # -- story ------------------------------------------------------------------------------------

    def _tell(self, event: Event, actions: list[Action]) -> list[Action]:
        self._story.append(f"{str(event)[:120]} -> {self.phase.name}, {len(actions)} actions")
        return actions

    def _broken(self, what: str) -> BrokenGuarantee:
        return BrokenGuarantee(f"{what}; story: {' | '.join(self._story) or 'none'}")


def _give_up(task: Task, chain: Chain) -> GiveUp:
    return GiveUp(task, chain.how_lost, chain.num_in_vain)


def _is(task: Task | None, task_id: int) -> bool:
    return task is not None and task.id == task_id
