"""Whatever happens in whatever order: each batch leaves once, in order, made where it may be.

The machine plays the driver and honest workers; the stream decides. What a worker "makes" is
the tuple of tasks that its chain had run at home before, so a batch made in the wrong state, or
twice in one life, is told from the right one.
"""

from collections import Counter
from dataclasses import dataclass, field

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from stoker.errors import BrokenGuarantee
from stoker.scheduler.decider import Stream
from stoker.scheduler.events import (
    Arrived,
    Ask,
    Closed,
    Drawn,
    Ended,
    FreeArrived,
    GiveUp,
    Kill,
    Late,
    Lost,
    NotIndependent,
    Offered,
    PointTaken,
    ReplayDiverged,
    Restarted,
    Start,
    WorkerReady,
)
from stoker.scheduler.rules import OF_ITERABLES, TABLE
from stoker.scheduler.rules.losses import BEYOND_HELP
from stoker.scheduler.state import Limits, Phase
from stoker.scheduler.tasks.slot import Role
from tests.slots import C, S

SAME = b"same"


@dataclass(frozen=True)
class Point:
    """A worker's Point. state: tasks of the chain that had left a mark."""

    task_id: int
    fingerprint: bytes
    drew: bool
    state: tuple[int, ...]
    task_s: float = 1.0
    watch_s: float = 0.0


@dataclass
class Worker:
    """A process: its inbox, and the marks that tasks have left in it."""

    inbox: list[Ask] = field(default_factory=list)
    marks: tuple[int, ...] = ()
    has_run: list[int] = field(default_factory=list)  # not in skip
    skip_until: int = -1
    greeting: object = None
    away: bool = False  # on another machine


class Streams(RuleBasedStateMachine):
    """Tasks in `marking` leave a mark (a moved state, or a draw) that later batches show."""

    @initialize(
        num_chains=st.integers(1, 3),
        num_extras=st.sampled_from([2, 1, 0]),
        prefetch_factor=st.integers(1, 3),
        in_order=st.booleans(),
        may_be_free=st.sampled_from([True, True, True, False]),
        marking=st.sampled_from([(), (), (1,), (3, 4), (6,), (9, 14), (12,), (13,)]),
        by=st.sampled_from(["drew", "moved"]),
        num_warm=st.sampled_from([2, 3, 1, 0]),
        capacity=st.sampled_from([0, 0, 1, 3]),
    )
    def begin(
        self, num_chains, num_extras, prefetch_factor, in_order, may_be_free, marking, by, num_warm,
        capacity=0,
    ):  # fmt: skip
        self.stream = Stream(
            num_chains=num_chains,
            prefetch_factor=prefetch_factor,
            in_order=in_order,
            num_slots=num_chains + num_extras,
            may_be_free=may_be_free and num_extras + capacity > 0,
            may_hedge=True,
        )
        self.most_places = self.num_seconds = 0
        self.num_chains, self.prefetch_factor, self.in_order = num_chains, prefetch_factor, in_order
        self.marking, self.by = marking, by
        self.workers = {slot: Worker() for slot in self.stream.first_slots}
        self.ever = dict.fromkeys(range(num_chains), ())  # each chain's tasks, as sent home
        self.num_drawn = self.num_left = self.num_before = 0
        self.chain_of = {}
        self.deaths = Counter()  # by the task that was being made; -1: by none
        self.given_up, self.taken, self.never_sent = set(), set(), set()
        if capacity:
            self.offer(capacity, 1)
        for _ in range(num_warm):  # towards FREE, where most of the races are
            self.draw_all()
            self.everybody_works(want_point=True)
            self.take_all()

    # -- the driver ---------------------------------------------------------------------------

    def do(self, actions):
        for action in actions:
            match action:
                case Ask(slot, task):
                    worker = self.workers.get(slot)
                    assert worker is not None, f"{action} to nobody"
                    self.check_ask(action)
                    worker.inbox.append(action)
                    self.chain_of[task.id] = task.chain
                case Start(slot, point, must_report, away):
                    assert slot not in self.workers, "two workers in one slot"
                    self.workers[slot] = self.newborn(point, must_report)
                    self.workers[slot].away = away
                    assert away or slot.role in (Role.CHAIN, Role.EXTRA, Role.FINGERPRINT)
                case Kill(slot):
                    self.workers.pop(slot, None)
                case GiveUp(task, how):
                    self.check_give_up(how)
                    self.given_up.add(task.id)
                    self.chain_of[task.id] = task.chain
                    self.stream.reorder.hold(task.id, "gave up")

    def check_ask(self, ask):
        task = ask.task
        if ask.free:
            assert self.stream.phase is Phase.FREE
            return
        assert ask.slot.chain == task.chain, "home is the chain's own worker"
        early = task.id - self.num_left >= self.prefetch_factor * self.num_chains
        assert not early, "torch would not have sent this yet"

    def check_give_up(self, how):
        """Only where one task was being made at enough deaths, or so many were in vain."""
        guilty = [num for task, num in self.deaths.items() if task != -1]
        is_blamed = max(guilty, default=0) >= Limits().max_deaths
        assert is_blamed or self.deaths[-1] >= Limits().max_in_vain or how == BEYOND_HELP

    def newborn(self, point, must_report):
        worker = Worker()
        resumes = point is not None and point.fingerprint == SAME
        if resumes:
            worker.skip_until = point.task_id
            worker.marks = point.state if self.by == "drew" else ()
        if point is not None or must_report:
            worker.greeting = (SAME, resumes)
        return worker

    # -- what the world may do --------------------------------------------------------------

    def slots(self, wanted):
        return sorted(slot for slot, worker in self.workers.items() if wanted(worker))

    @precondition(lambda self: self.stream.wants_index)
    @rule()
    def draw(self):
        self.num_drawn += 1
        self.do(self.stream.step(Drawn(b"")))

    @rule()
    def draw_all(self):
        while self.stream.wants_index:
            self.draw()

    @rule()
    def take_all(self):
        while self.take():
            continue

    @rule()
    def take_one(self):
        self.take()

    def take(self):
        left = self.stream.reorder.take()
        if left is None:
            return False
        task_id, batch = left
        if self.in_order:
            assert task_id == self.num_left, "in order, none left out"
        assert self.num_before <= task_id < self.num_drawn
        assert task_id not in self.taken, "twice"
        self.taken.add(task_id)
        self.num_left += 1
        if batch == "gave up":
            assert task_id in self.given_up
        else:
            assert batch == self.right(task_id)
        self.do(self.stream.taken(task_id))
        return True

    def right(self, task_id):
        """What torch's worker would have made: it shows the marks of the chain's earlier tasks."""
        chain = self.chain_of[task_id]
        marks = tuple(
            i for i in self.marking if i < task_id and self.chain_of.get(i) == chain
            and i not in self.never_sent
        )  # fmt: skip
        return task_id, self.shown(task_id, marks)

    def shown(self, task_id, marks):
        """What a batch shows of earlier tasks: one that draws nothing shows no generator."""
        return marks if self.by == "moved" or task_id in self.marking else ()

    @rule(data=st.data(), want_point=st.booleans())
    def work(self, data, want_point):
        """One worker does the next thing that it owes."""
        slots = self.slots(lambda worker: worker.greeting or worker.inbox)
        if slots:
            self.work_at(data.draw(st.sampled_from(slots)), want_point)

    @rule(want_point=st.booleans())
    def everybody_works(self, want_point):
        for slot in self.slots(lambda worker: True):
            while slot in self.workers and (
                self.workers[slot].greeting or self.workers[slot].inbox
            ):
                self.work_at(slot, want_point)

    def work_at(self, slot, want_point):
        worker = self.workers[slot]
        if worker.greeting:
            greeting, worker.greeting = worker.greeting, None
            self.do(self.stream.step(WorkerReady(slot, *greeting)))
            return
        ask = worker.inbox.pop(0)
        task = ask.task
        if task.id <= worker.skip_until and not ask.free:
            return
        if ask.free:
            self.work_free(slot, worker, task)
            return
        batch = task.id, self.shown(task.id, worker.marks)
        assert task.id not in worker.has_run, "at most once a life"
        worker.has_run.append(task.id)
        if task.id in self.marking:
            worker.marks += (task.id,)
        if ask.quiet:
            return
        self.do(self.stream.step(Arrived(slot, task.id, batch)))
        if ask.watch or want_point:
            drew = self.by == "drew" and bool(worker.marks)
            moved = self.by == "moved" and bool(worker.marks)
            state = repr(worker.marks).encode() if moved else SAME
            self.do(
                self.stream.step(PointTaken(task.chain, Point(task.id, state, drew, worker.marks)))
            )

    def work_free(self, slot, worker, task):
        if task.id in self.marking:
            worker.marks += (task.id,) if self.by == "moved" else ()
            self.do(self.stream.step(NotIndependent(slot, task.id, self.by)))
        else:
            self.do(self.stream.step(FreeArrived(slot, task.id, (task.id, ()))))

    @rule(data=st.data())
    def die(self, data):
        slots = self.slots(lambda worker: True)
        if slots:
            slot = data.draw(st.sampled_from(slots))
            worker = self.workers.pop(slot)
            is_machine = worker.away and data.draw(st.booleans())
            begun = -1
            if worker.inbox and not (worker.greeting or worker.inbox[0].quiet):
                begun = data.draw(st.sampled_from([-1, worker.inbox[0].task.id]))
            if not is_machine:
                self.deaths[begun] += 1
            self.do(self.stream.step(Lost(slot, None if is_machine else "killed", begun=begun)))

    @rule(capacity=st.integers(0, 3), num_local=st.integers(0, 2), is_crowded=st.booleans())
    def offer(self, capacity, num_local, is_crowded=False):
        """Machines come and go; those that go take their workers along."""
        self.most_places = max(self.most_places, capacity)
        crowd = self.slots(lambda worker: worker.away and is_crowded)
        self.do(self.stream.step(Offered(capacity, num_local, SAME, tuple(crowd))))
        if not capacity:
            for slot in self.slots(lambda worker: worker.away):
                if slot in self.workers:
                    del self.workers[slot]
                    self.do(self.stream.step(Lost(slot, None)))
            assert not self.slots(lambda worker: worker.away), "nowhere to be"

    @rule(late_s=st.sampled_from([0.0, 1e6, 1e6]))
    def be_late(self, late_s):
        """The batch that leaves next does not come."""
        slot, task_id = self.stream.next_slot, self.stream.reorder.next_id
        if slot in self.workers and task_id < self.num_drawn:
            num_workers = len(self.workers)
            self.do(self.stream.step(Late(slot, task_id, late_s, 1.0)))
            self.num_seconds += len(self.workers) - num_workers

    @rule()
    def restart(self):
        self.do(self.stream.step(Restarted()))
        unsent = set(range(self.num_drawn)) - set(self.chain_of) - self.taken
        schedule_end = self.num_left + self.prefetch_factor * self.num_chains
        # Also of those that were asked for as free ones: torch would not have sent them yet.
        self.never_sent |= unsent | set(range(schedule_end, self.num_drawn))
        self.num_left = self.num_before = self.num_drawn

    @rule(
        event=st.sampled_from(
            [
                FreeArrived(C[0], 0, None),
                NotIndependent(C[0], 0, "drew"),
                Ended(C[0], 0),
                ReplayDiverged(C[0]),
            ]
        )
    )
    def hear_what_cannot_be(self, event):
        """It raises, and nothing else happens: the invariants go on to hold."""
        if type(event) not in TABLE[self.stream.phase] or type(event) in OF_ITERABLES:
            with pytest.raises(
                BrokenGuarantee, match=f"{type(event).__name__}.* while {self.stream.phase.name}"
            ):
                self.stream.step(event)

    # -- what holds at any moment ------------------------------------------------------------

    @invariant()
    def what_is_in_flight_is_bounded(self):
        if hasattr(self, "stream"):
            num_workers = max(self.num_chains, self.stream.num_slots + self.most_places)
            in_flight = self.num_drawn - self.num_left
            assert in_flight <= self.prefetch_factor * num_workers

    @invariant()
    def every_batch_that_is_out_is_held_owed_or_waiting(self):
        """Nothing is forgotten: work always goes on."""
        if not hasattr(self, "stream"):
            return
        stream = self.stream
        owed = {ask.task.id for w in self.workers.values() for ask in w.inbox if not ask.quiet} | {
            task.id for task in stream.waiting
        }
        out = set(range(self.num_before, self.num_drawn)) - self.taken
        held = set(stream.reorder._held)
        assert out <= owed | held, "lost for ever"

    @invariant()
    def barred_has_no_extras(self):
        if hasattr(self, "stream") and self.stream.phase is Phase.BARRED:
            assert all(slot.chain is not None for slot in self.workers)

    @invariant()
    def a_chain_has_a_second_worker_only_where_it_is_asked_for_the_same(self):
        if hasattr(self, "stream"):
            for slot in self.workers:
                if slot.chain is None:
                    continue
                first, second = C[slot.chain], S[slot.chain]
                if {first, second} <= set(self.workers):
                    chain = self.stream.chains[slot.chain]
                    assert {chain.slot, chain.second_slot} == {first, second}
                    wanted = [
                        [
                            ask.task.id
                            for ask in self.workers[slot].inbox
                            if not ask.quiet and not ask.free  # those crossed with the bar
                        ]
                        for slot in (first, second)
                    ]
                    assert wanted[0] == wanted[1]

    def teardown(self):
        if hasattr(self, "stream"):
            assert self.stream.step(Closed()) == []
            assert self.stream.step(Arrived(C[0], 10**6, None)) == []


def test_whatever_happens_every_batch_leaves_once_in_order_as_torch_would_have_made_it():
    run_state_machine_as_test(
        Streams,
        settings=settings(
            max_examples=300, stateful_step_count=60, deadline=None, derandomize=True
        ),
    )


def test_a_free_task_survives_that_its_worker_draws_for_one_that_a_restart_let_go():
    streams = Streams()
    streams.begin(
        num_chains=2, num_extras=2, prefetch_factor=1, in_order=True, may_be_free=True,
        marking=(12,), by="drew", num_warm=3,
    )  # fmt: skip
    for num_drawn in (2, 3, 1):
        streams.restart()
        for _ in range(num_drawn):
            streams.draw()
    assert [ask.task.id for ask in streams.workers[C[0]].inbox] == [8, 12, 13]
    streams.everybody_works(want_point=False)
    streams.every_batch_that_is_out_is_held_owed_or_waiting()
    streams.take_all()
    assert 13 in streams.taken
