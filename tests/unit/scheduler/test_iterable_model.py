"""Iterables: whatever happens in whatever order, each batch leaves once, in torch's round robin,
from a worker that has fetched what torch's worker would have fetched before it.

The machine plays the driver and honest workers. A batch shows its chain, its epoch, its number
in it, and how often the chain had fetched in each epoch before.
"""

from dataclasses import dataclass, field
from typing import ClassVar

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

from stoker.scheduler.decider import Stream
from stoker.scheduler.events import (
    Arrived,
    Ask,
    Drawn,
    Ended,
    Finish,
    GiveUp,
    Kill,
    Lost,
    Reload,
    ReplayDiverged,
    Rerun,
    Restarted,
    Resume,
    Start,
    StateSaved,
)
from tests.slots import C


@dataclass(frozen=True)
class FakePoint:
    """A point, after so many batches; is_true: whether the state is all there is."""

    num_fetched: int
    is_true: bool
    proofs: ClassVar = (b"", b"")


@dataclass
class Worker:
    """A process: its inbox, and how often it has fetched, by epoch."""

    inbox: list = field(default_factory=list)
    num_fetched: list[int] = field(default_factory=lambda: [0])
    is_over: bool = False


class Iterables(RuleBasedStateMachine):
    """lengths: batches of each chain's shard, in any epoch."""

    @initialize(
        lengths=st.lists(st.sampled_from([0, 1, 2, 3, 7]), min_size=1, max_size=4),
        prefetch_factor=st.integers(1, 3),
        persistent=st.booleans(),
    )
    def begin(self, lengths, prefetch_factor, persistent):
        self.lengths, self.prefetch_factor, self.persistent = lengths, prefetch_factor, persistent
        self.stream = Stream(
            num_chains=len(lengths), num_slots=len(lengths), prefetch_factor=prefetch_factor,
            is_iterable=True, persistent=persistent,
        )  # fmt: skip
        self.workers = {C[chain]: Worker() for chain in range(len(lengths))}
        self.num_sent = {
            chain: [0] for chain in range(len(lengths))
        }  # as torch would have, by epoch
        self.epoch = 0
        self.left, self.given_up = [], set()
        self.saves = ""
        self.fill()

    # -- the driver ------------------------------------------------------------------------------

    def do(self, actions, is_replay=False):
        for action in actions:
            match action:
                case Ask(slot, task, quiet):
                    assert not quiet and slot == C[task.chain]
                    if not is_replay:
                        self.num_sent[task.chain][-1] += 1
                    self.workers[slot].inbox.append(action)
                case Kill(slot):
                    del self.workers[slot]
                case Resume(slot) | Rerun(slot) | Reload(slot):
                    self.workers[slot].inbox.append(action)
                case Start(slot):
                    assert slot not in self.workers, "two workers in one slot"
                    self.workers[slot] = Worker()
                case Finish(slot):
                    assert not self.persistent
                    del self.workers[slot]
                case GiveUp(task):
                    self.given_up.add(task.chain)
                    self.stream.reorder.hold(task.id, "gave up")

    @rule()
    def fill(self):
        while self.stream.wants_index:
            self.do(self.stream.step(Drawn(b"")))

    @rule(num=st.integers(1, 5))
    def take(self, num):
        for _ in range(num):
            left = self.stream.reorder.take()
            if left is None:
                return
            self.left.append(left[1])
            self.do(self.stream.taken(left[0]))

    # -- what the world may do -------------------------------------------------------------------

    @rule(data=st.data())
    def work(self, data):
        busy = sorted(slot for slot, worker in self.workers.items() if worker.inbox)
        if busy:
            self.work_at(data.draw(st.sampled_from(busy)))

    @rule()
    def everybody_works(self):
        for slot in sorted(self.workers):
            while slot in self.workers and self.workers[slot].inbox:
                self.work_at(slot)

    def work_at(self, slot):
        worker = self.workers[slot]
        match worker.inbox.pop(0):
            case Resume():
                worker.num_fetched.append(0)
                worker.is_over = False
            case Reload(_, point):
                assert worker.num_fetched == [0], "it is to be the first that a worker does"
                if not point.is_true:
                    self.do(self.stream.step(ReplayDiverged(slot)), is_replay=True)
                worker.num_fetched = [point.num_fetched]
            case Rerun(_, num_batches):
                for _ in range(num_batches):
                    self.fetch(slot, worker)
            case Ask(_, task) if not worker.is_over:
                batch = self.fetch(slot, worker)
                if batch is None:
                    self.do(self.stream.step(Ended(slot, task.id)))
                else:
                    self.do(self.stream.step(Arrived(slot, task.id, batch)))
                    if self.saves and worker.num_fetched[-1] >= len(FakePoint.proofs):
                        point = FakePoint(worker.num_fetched[-1], self.saves != "wrongly")
                        self.do(self.stream.step(StateSaved(slot.chain, point)))

    def fetch(self, slot, worker):
        assert not worker.is_over
        number = worker.num_fetched[-1]
        worker.num_fetched[-1] += 1
        worker.is_over = number >= self.lengths[slot.chain]
        epoch = len(worker.num_fetched) - 1
        return (
            None if worker.is_over else (slot.chain, epoch, number, tuple(worker.num_fetched[:-1]))
        )

    @rule(data=st.data())
    def die(self, data):
        if self.workers:
            slot = data.draw(st.sampled_from(sorted(self.workers)))
            del self.workers[slot]
            self.do(self.stream.step(Lost(slot, "killed")), is_replay=True)

    @rule(data=st.data())
    def die_of_a_state(self, data):
        """Whatever is in it, a replacement that dies of it is not the last one."""
        loading = [s for s, w in self.workers.items() if w.inbox and isinstance(w.inbox[0], Reload)]
        if loading:
            slot = data.draw(st.sampled_from(sorted(loading)))
            del self.workers[slot]
            self.do(self.stream.step(Lost(slot, "killed")), is_replay=True)
            if slot in self.workers:
                assert not any(isinstance(action, Reload) for action in self.workers[slot].inbox)

    @precondition(lambda self: not self.persistent)
    @rule(how=st.sampled_from(["", "rightly", "wrongly"]))
    def from_now_on_it_saves(self, how):
        self.saves = how

    @precondition(lambda self: self.persistent)
    @rule()
    def restart(self):
        self.epoch += 1
        self.left = []
        for sent in self.num_sent.values():
            sent.append(0)
        self.do(self.stream.step(Restarted(b"")))
        self.fill()

    # -- what holds at any moment ----------------------------------------------------------------

    @invariant()
    def batches_leave_in_torchs_round_robin_and_show_the_right_past(self):
        if not hasattr(self, "stream") or self.given_up:
            return
        expected = [
            (chain, self.epoch, number, self.past_of(chain))
            for number in range(max(self.lengths))
            for chain in range(len(self.lengths))
            if number < self.lengths[chain]
        ]
        assert self.left == expected[: len(self.left)]

    def past_of(self, chain):
        most = self.lengths[chain] + 1  # the last one finds that it has ended
        return tuple(min(num, most) for num in self.num_sent[chain][:-1])

    @invariant()
    def work_goes_on_until_everything_has_left(self):
        if not hasattr(self, "stream"):
            return
        stream = self.stream
        if any(worker.inbox for worker in self.workers.values()) or stream.reorder.num_held:
            return
        if stream.is_exhausted and not stream.wants_index and not self.given_up:
            assert len(self.left) == sum(self.lengths)
        assert stream.is_exhausted or stream.wants_index, "nobody does anything any more"

    @invariant()
    def no_worker_is_sent_more_than_torch_would_send(self):
        if hasattr(self, "stream"):
            chains = [chain for chain in self.stream.chains if not chain.is_hopeless]
            owed = sum(chain.num_owed for chain in chains if not chain.is_over)
            assert owed <= self.prefetch_factor * len(self.lengths) * (1 + self.epoch)


def test_whatever_happens_iterables_are_delivered_as_by_torch():
    run_state_machine_as_test(
        Iterables,
        settings=settings(
            max_examples=300, stateful_step_count=60, deadline=None, derandomize=True
        ),
    )
