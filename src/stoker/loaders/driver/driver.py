"""Serves one loader's iterator: sends index lists to workers, waits for batches, closes.

Owner: the thread that iterates. Large tensors wait in the arenas and frames in the sockets until
`next` asks for them, so the training loop pays for nothing that it does not use, and a fork finds
no thread of ours.
"""

import math
import os
import socket
from collections.abc import Callable, Sequence
from functools import partial
from multiprocessing.context import BaseContext
from multiprocessing.process import BaseProcess
from typing import TYPE_CHECKING, Any, NamedTuple

from stoker.blame import DIED_EARLY, LeftToTorch
from stoker.clock import Deadline, now_s
from stoker.errors import BrokenGuarantee
from stoker.loaders.driver import forks
from stoker.loaders.driver.actions import Actions
from stoker.loaders.driver.helpers import Alone, Helpers
from stoker.loaders.driver.inbox import DriverStats, Inbox, Told
from stoker.loaders.driver.lines import Lines
from stoker.loaders.driver.memory import Memory
from stoker.loaders.driver.workers import EXIT_WAIT_S, Workers
from stoker.local.started import Started
from stoker.local.template import Template, reap
from stoker.memory.store import ShelfAccess, Wish
from stoker.poll_loop import PollLoop
from stoker.scheduler.base import State
from stoker.scheduler.events import Closed, Drawn, Event, GiveUp, Restarted, Start
from stoker.scheduler.tasks.slot import FINGERPRINT, PACKER, Exit, Slot
from stoker.stalls import stacks
from stoker.wire.arena import ARENA_NBYTES, Lender, Room
from stoker.wire.batch_codec import dumps
from stoker.wire.channel import ConnectionLost
from stoker.wire.marks import LOST, NOTHING, Marks
from stoker.worker.job import Job
from stoker.worker.main import FAILED, main

if TYPE_CHECKING:  # see workers.py
    from stoker.remote.trainer.fleet import Fleet

# Workers beyond the cores are forked after the first batch, for which every fork competes, or
# after this long, for then it is waiting that makes a batch. Measured: benchmarks/epoch_gap.py
REST_AFTER_S = 0.05
HERE_S = 1e-4  # what poll() takes at most where something has come already
# Where the last wait was shorter than this the trainer looks for the next batch so long before it
# sleeps: to wake a process on an idle core costs the worker 25 us. Measured: benchmarks/tokens.py
SPIN_S = 2e-4
QUIET_S = 60.0  # without a batch, until it is said where workers stand


class Died(NamedTuple):
    """Replaces a batch whose workers died. body: the indices that could not be made, encoded; empty
    for an iterable, or if they are of no interest; num_in_vain: see GiveUp."""

    how: Exit | str
    body: bytes
    num_in_vain: int = 0


# See wait_next; a batch can be anything else, None too, and is never asked for truth or equality.
ENDED, TIMED_OUT = object(), object()


class Driver:
    """Runs one loader's workers, from its iter() to its end."""

    def __init__(
        self,
        state: State,
        job: Job,
        context: BaseContext,
        *,
        arena_nbytes: int,
        held_limit_nbytes: int,
        processes: Sequence[BaseProcess] = (),
        fleet: "Fleet | None" = None,
        user: object = None,
        wish: Wish | None = None,
        say: Callable[[str], None] | None = None,
    ) -> None:
        """Start the workers. context: how processes are started; processes: with fork, one
        never-started Process a chain; fleet: other machines, which may help if workers are forked.
        held_limit_nbytes: what the script may keep in arenas before further batches are copied to
        ordinary memory; negative: all are, and that is not reported. user: the loader, whose next
        workers can use what these leave. wish: of the shelf of remembered samples. say: tells the user
        where workers stand, once, if no batch comes for QUIET_S."""
        reap()
        self.state = state
        self.taken_id = -1  # task of the batch that left last
        self.why_slow = ""  # why that batch took long to make; whoever reads it makes it empty
        self._owner_pid = os.getpid()
        self._say = say
        self._is_closed = False
        is_forked = context.get_start_method() == "fork"
        self._memory = Memory(
            state.local_slots, arena_nbytes, can_travel=not is_forked, user=user, wish=wish
        )
        given = {slot: self._memory.of(slot) for slot in (*state.local_slots, FINGERPRINT)}
        body = partial(_run, job, given)
        first = state.first_slots
        try:
            here = (
                Template(processes, body, first, shared=job.dataset)
                if is_forked
                else Started(
                    context, processes, body, first, wish is not None, job.dataset, job.shared
                )
            )
        except BaseException:  # its traceback may live on, and this with it
            self._memory.give_back(is_written_to=True)
            raise
        self.names = here.names
        self._lines = Lines(self._receive_all_from)
        self._workers, self._helpers = Workers(here, self._memory), Alone()
        self._news_fds: set[int] = set()
        self._lost: set[Slot] = set()  # whose worker was lost once
        self._rest_deadline: Deadline | None = Deadline(REST_AFTER_S)
        self._waited_s = math.inf  # for the last frame that had not come yet
        try:
            if fleet is not None and not fleet.is_gone:
                away = fleet.open(here.start(PACKER), min(arena_nbytes, ARENA_NBYTES))
                self._workers = Workers(here, self._memory, away)
                self._helpers = Helpers(fleet, away, self._workers.away, job.shared)
            self._begin(held_limit_nbytes, job)
        except BaseException:
            self.close(0.0)
            raise

    def _begin(self, held_limit_nbytes: int, job: Job) -> None:
        keeps_states = job.worker_states is not None
        inbox = Inbox(self._workers, self._helpers, held_limit_nbytes, keeps_states)
        is_iterable = self.state.is_iterable
        self._inbox = inbox
        self._actions = Actions(
            self._lines, self._workers, self._helpers, inbox, is_iterable, self._give_up
        )
        self._watch_news()
        forks.watch(self)
        self._actions.do([Start(slot) for slot in self.state.first_slots])

    # -- the iterator's calls --------------------------------------------------------------------

    @property
    def stats(self) -> DriverStats:
        return self._inbox.stats

    @property
    def states(self) -> dict[int, Told]:
        """Worker states, by task, that came with batches not yet taken; of a stateful job."""
        return self._inbox.states

    @property
    def ends(self) -> list[tuple[int, Told]]:
        """Tasks at which a chain's iterable ended, with its worker's state; of a stateful job."""
        return self._inbox.ends

    def crew(self) -> tuple[int, list[tuple[Slot, bool, int, list[int]]]] | None:
        """Return how many batches have come and were not taken; and of each worker its slot, whether it is here, the task that
        it makes, NOTHING, or LOST for one that was lost and not replaced yet, and those that it owes. None once the loop has
        ended.

        Called by another thread, too: what that one reads may be a moment old.
        """
        if self._is_closed:
            return None
        slots = self._lines.slots
        at = [self._at(slot) for slot in slots if slot != FINGERPRINT]
        at += [(slot, True, LOST, []) for slot in tuple(self._lost) if slot not in slots]
        return self.state.reorder.num_held, at

    def _at(self, slot: Slot) -> tuple[Slot, bool, int, list[int]]:
        is_here, owes = slot not in self._workers.away, self.state.owed_by(slot)
        making = self._memory.begun(slot) if is_here else min(owes, default=NOTHING)
        return slot, is_here, making, owes

    def prepare_each(self, prepare: Callable[[Any], Any] | None) -> None:
        """Have `prepare` called on each batch as it arrives."""
        self._inbox.prepare = prepare

    def draw(self, indices: object, wants_state: bool = False) -> None:
        """Have the sampler's next index list made into a batch."""
        if self._helpers.leave_if_written():
            self._hear_helpers()
        self._apply(Drawn(dumps(indices), wants_state))

    def wait_next(self, deadline: Deadline) -> Any:
        """Return the next batch, a Failed or a Died; TIMED_OUT when the deadline passes.

        ENDED once a chain's iterable has ended meanwhile: other chains may be sent more now, or
        nothing may be left.
        """
        reap()
        self._actions.tell_returned()
        self._helpers.work_ended()
        if self._helpers.is_due():
            self._hear_helpers()
        if self._inbox.prepare is not None:
            self.receive_ready()
        if self._rest_deadline is not None:
            self._wait_first(self._rest_deadline)
        quiet: Deadline | None = None
        while (taken := self.state.reorder.take()) is None:
            if self._inbox.has_ended:
                self._inbox.has_ended = False
                return ENDED
            quiet = quiet or Deadline(QUIET_S)
            is_to_say = self._say is not None and quiet.is_before(deadline)
            if not self._receive_or_tell(quiet if is_to_say else deadline):
                if deadline.is_over():
                    return TIMED_OUT
                self._say_where()
        task_id, batch = taken
        self.taken_id = task_id
        if self._inbox.slow:
            self.why_slow = self._inbox.slow.get(task_id, self.why_slow)
            # Of a batch that a second worker was asked for, too, an answer may have come late.
            self._inbox.slow = {k: why for k, why in self._inbox.slow.items() if k > task_id}
        self._actions.do(self.state.taken(task_id))
        self._helpers.work_began()
        return batch

    def _say_where(self) -> None:
        """Tell the user where each worker stands, once."""
        say, self._say = self._say, None
        places: dict[str, list[int]] = {}
        for slot in self._lines.slots:
            if slot != FINGERPRINT:
                is_away = slot in self._workers.away
                pid = None if is_away else self._workers.wait_pid(slot, Deadline(0))
                at = "on another machine" if is_away else stacks.where(pid)
                places.setdefault(at, []).append(slot.number)
        if say is not None:
            say(stacks.told(QUIET_S, places))

    def receive_ready(self) -> None:
        """Take in what has arrived, of each worker as much as one read returns. Never waits."""
        for slot in self._lines.slots:
            self._receive_all_from(slot)

    def restart(self, shared_seed: int | None) -> None:
        """Begin the next epoch on the same workers. shared_seed: of a DataPipe."""
        self._inbox.has_ended = False
        self._apply(Restarted(dumps(shared_seed)))

    def wait_begun(self, chain: int, epoch: int, deadline: Deadline) -> Any:
        """Return the encoded state that a chain's worker begins an epoch with; of a stateful job.

        Died or TIMED_OUT as from `wait_next`. epoch: counted from iter(), on living workers.
        """
        self._start_rest()
        while (begun := self._inbox.begun.get(chain)) is None or begun[0] < epoch:
            slot = self.state.slot_of(chain)
            if self._lines.get(slot) is None:  # for good: a replacement would have been started
                how = self._workers.wait_exit(slot, Deadline(0))
                return Died(how or "it could not be brought back", b"")
            if not self._receive(deadline):
                return TIMED_OUT
        return begun[1]

    def wait_pid(self, chain: int) -> int | None:
        self._start_rest()
        return self._workers.wait_pid(self.state.slot_of(chain), Deadline(EXIT_WAIT_S))

    def wait_exit(self, chain: int, deadline: Deadline) -> Exit | None:
        self._start_rest()
        return self._workers.wait_exit(self.state.slot_of(chain), deadline)

    def signal(self, chain: int, signum: int) -> None:
        self._start_rest()
        self._workers.signal(self.state.slot_of(chain), signum)

    def why_torchs(self, died: Died) -> Exception | None:
        """Return why torch's own workers may live where one of these died: stoker failed in it, or the
        process that starts workers has ended. None: they would die too."""
        if isinstance(died.how, Exit) and died.how.code == FAILED:
            return BrokenGuarantee("a process that makes batches died of it")
        if self._workers.is_gone:
            return LeftToTorch(DIED_EARLY)
        return None

    def close(self, grace_s: float) -> None:
        """End the workers: ask, wait until each is gone, then terminate, then kill.

        Idempotent; does nothing in a forked copy. What workers here had open is closed after it.
        """
        if os.getpid() != self._owner_pid or self._is_closed:
            return
        self._is_closed = True
        forks.forget(self)
        self.state.step(Closed())
        self._workers.drop_rest()
        for slot in self._workers.away & set(self._lines.slots):
            self._hang_up(slot)  # torch joins its workers; nothing of these is here
        self._lines.finish()
        deadline, left_s = Deadline(grace_s), 0.0
        at_work: list[Slot] = []
        try:
            at_work = [slot for slot in self._lines.slots if not self._drain(slot, deadline)]
            left_s = deadline.left_s() or 0.0
        finally:
            for slot in self._lines.slots:  # where a handler of the script's has ended the wait
                self._hang_up(slot)
            self._workers.close(left_s)
        self._memory.give_back(is_written_to=bool(at_work))
        forks.forget_dead_children()

    @property
    def lenders(self) -> list[Lender]:
        return self._workers.lenders

    def abandon(self) -> None:
        """Close a forked child's copies of the descriptors: the workers are the parent's."""
        self._lines.abandon()
        self._memory.abandon()

    # -- workers -----------------------------------------------------------------------------------

    def _wait_first(self, deadline: Deadline) -> None:
        """Wait for the first batch or the deadline; then start the workers that were put off."""
        while self.state.reorder.num_held == 0 and self._receive(deadline):
            continue
        self._start_rest()

    def _start_rest(self) -> None:
        if self._rest_deadline is not None:
            self._rest_deadline = None
            self._workers.start_rest()

    def _lose(self, slot: Slot) -> None:
        """Handle the loss of a worker that closed its socket itself or is known to have ended."""
        # First the waits: where a handler of the script's ends one, the next next() is told again.
        lost = self._workers.lost(slot)
        if not lost.was_given_back:
            self._lost.add(slot)
        self._hang_up(slot)
        if slot in self._workers.away:  # that its place is gone, or another would be started there
            self._hear_helpers()
        self._apply(lost)

    def _hang_up(self, slot: Slot) -> None:
        self._actions.hang_up(slot)

    def _drain(self, slot: Slot, deadline: Deadline) -> bool:
        """Discard what a worker sends until it has closed its end or is known to have ended, or the
        deadline passes. Returns whether it has ended."""
        line = self._lines.get(slot)
        assert line is not None
        channel = line.channel
        loop = PollLoop()
        loop.add(channel.fileno(), lambda: None)
        for fd in self._workers.news_fds_of(slot):
            loop.add(fd, lambda: None)
        has_left = False
        try:
            while channel.receive_nowait() is not None or loop.poll(deadline.left_s()):
                self._workers.hear()  # or news of another worker would end each wait at once
                if self._workers.wait_exit(slot, Deadline(0)) is not None:
                    has_left = True  # what it started may hold its socket
                    break
        except ConnectionLost:
            has_left = True
        self._hang_up(slot)
        return has_left

    # -- what is new -------------------------------------------------------------------------------

    def _receive_or_tell(self, deadline: Deadline) -> bool:
        """Receive as `_receive` does; tell the decider if the next batch is late meanwhile."""
        slot, task_id = self.state.next_slot, self.state.reorder.next_id
        late_at_s = self._helpers.late_at_s(slot, task_id)
        if slot is None or late_at_s is None:
            return self._receive(deadline)
        late = Deadline(late_at_s - now_s())
        has_come = self._receive(late if late.is_before(deadline) else deadline)
        if not has_come and late.is_over():
            self._apply(self._helpers.late(slot, task_id))
            return True
        return has_come

    def _receive(self, deadline: Deadline) -> bool:
        """Take in at least one frame. False when the deadline passed first."""
        slot, began_s = self.state.next_slot, now_s()
        if slot is not None and self._receive_from(slot):
            return True
        self._lines.send_rest()
        if slot is not None and self._spin(slot, began_s):
            return True
        left_s, silent_s = deadline.left_s(), self._helpers.silent_s
        is_to_end_silence = silent_s is not None and (left_s is None or silent_s <= left_s)
        ready = self._lines.loop.poll(silent_s if is_to_end_silence else left_s)
        self._waited_s = now_s() - began_s
        self._inbox.is_awaiting = self._waited_s > HERE_S
        self._lines.loop.call(ready)
        self._inbox.is_awaiting = False
        for ended in self._workers.take_ended():
            self._lose_ended(ended)
        if is_to_end_silence and not ready:
            self._helpers.end_silent()
            self._hear_helpers()
        return bool(ready) or not deadline.is_over()

    def _spin(self, slot: Slot, began_s: float) -> bool:
        """Look for a frame of a slot for a moment, if the last one came that soon."""
        if self._waited_s > SPIN_S:
            return False
        self._inbox.is_awaiting = True
        try:
            while (waited_s := now_s() - began_s) < SPIN_S:
                os.sched_yield()
                if self._receive_from(slot):
                    self._waited_s = waited_s
                    return True
        finally:
            self._inbox.is_awaiting = False
        return False

    def _lose_ended(self, slot: Slot) -> None:
        """Handle the end of a worker here; its socket may still be open in what it started."""
        line = self._lines.get(slot)
        while self._lines.get(slot) is line and self._receive_from(slot):
            continue  # what it said before, and maybe its socket's end: then another has its place
        if line is not None and self._lines.get(slot) is line:
            self._lose(slot)

    def _watch_news(self) -> None:
        """Poll the cluster's descriptors that may still have news, and no others."""
        fds = self._workers.news_fds()
        for fd in self._news_fds - fds:
            self._lines.loop.remove(fd)
        for fd in fds - self._news_fds:
            self._lines.loop.add(fd, self._hear_news)
        self._news_fds = fds

    def _hear_news(self) -> None:
        """Take in how workers ended, and what became of other machines."""
        self._workers.hear()
        self._hear_helpers()

    def _hear_helpers(self) -> None:
        """Tell the decider of changed capacity on other machines, and what this one can spare."""
        offer = self._helpers.offer(self.state.num_usable)
        self._watch_news()
        if offer is not None:
            self._apply(offer)

    def _receive_all_from(self, slot: Slot) -> None:
        """Take in every frame that one read returns: poll() reports only what is still unread."""
        while self._receive_from(slot):
            line = self._lines.get(slot)
            if line is None or not line.channel.has_unread:
                return

    def _receive_from(self, slot: Slot) -> bool:
        """Take in one frame of a slot, or its end. False when nothing has come."""
        line = self._lines.get(slot)
        if line is None:
            return False
        try:
            frame = line.channel.receive_nowait()
        except ConnectionLost:
            self._lose(slot)
            return True
        if frame is None:
            return False
        for event in self._inbox.take_in(slot, frame, line.lender):
            self._apply(event)
        return True

    def _apply(self, event: Event) -> None:
        self._actions.do(self.state.step(event))

    def _give_up(self, giving: GiveUp) -> None:
        """Put a Died in place of the batch of a task that no worker can do."""
        task = giving.task
        self._inbox.bodies.pop(task.id, None)
        body = b"" if self.state.is_iterable else task.body
        self.state.reorder.hold(task.id, Died(giving.how, body, giving.num_in_vain))


def _run(
    job: Job,
    given: dict[Slot, tuple[Room | None, tuple[Marks, int], ShelfAccess | None]],
    slot: Slot,
    sock: socket.socket,
) -> None:
    """What a process runs that was forked from a template. given: by slot, see `Memory.of`."""
    if slot == PACKER:
        from stoker.remote.net.ship import ship

        ship(job, sock)
    else:
        main(job, slot, sock, *given[slot])
