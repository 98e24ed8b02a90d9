"""Carries out what the decider decides, on sockets and processes.

Owner: the thread that iterates. There is no reader thread: frames wait in the sockets and
large tensors in the arenas until `next` wants them, so the training loop pays for nothing
that it does not use, and a fork finds no thread of ours.
"""

import math
import os
import pickle
import select
import signal
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.context import BaseContext
from multiprocessing.process import BaseProcess
from typing import TYPE_CHECKING, Any, NamedTuple

from stoker import descriptors
from stoker.clock import Deadline, now_s
from stoker.cluster.base import Exit
from stoker.cluster.local import Template, reap
from stoker.cluster.sizing import machine_nbytes
from stoker.cluster.spawned import Spawned
from stoker.order.chain import chain_of
from stoker.scheduler.base import State
from stoker.scheduler.events import (
    Arrived,
    Ask,
    Astray,
    Closed,
    Drawn,
    Ended,
    Event,
    Finish,
    FreeArrived,
    GiveUp,
    Greeted,
    Kill,
    Late,
    Lost,
    Refused,
    Reload,
    Rerun,
    Restarted,
    Resume,
    Start,
    Watched,
)
from stoker.stream import forks
from stoker.stream.helpers import SHIPPER, Helpers
from stoker.wire.batch_codec import decode, dumps
from stoker.wire.channel import Channel, ConnectionLost, Frame
from stoker.wire.frame import INLINE, PLACE, Flag, Kind, pack, pack_begin, unpack_wire
from stoker.wire.marks import Marks
from stoker.wire.slabs import AT_ONCE_NBYTES, Arena, Lender
from stoker.wire.stream_copy import STREAM_NBYTES, WHY_NONE
from stoker.worker.job import Job
from stoker.worker.main import FAILED, main

if TYPE_CHECKING:  # see helpers.py
    from stoker.plane.fleet import Away, Fleet

# What a process that was told to end may take to say how it ended.
EXIT_WAIT_S = 5.0
# Workers beyond the cores are forked after the first batch, for which every fork competes, or
# after this long, for then it is waiting that makes a batch. Measured: benchmarks/epoch_gap.py
REST_AFTER_S = 0.05
# How often a loop that never waits hears of other machines, which speak twice a second.
HEAR_EVERY_S = 0.1
HERE_S = 1e-4  # what poll() takes at most where something has come already


@dataclass(frozen=True, slots=True)
class Failed:
    """In place of a batch: torch's ExceptionWrapper from the worker, and where it was."""

    wrapper: Any
    slot: int
    task_id: int
    body: bytes
    node: str = ""  # where the worker was, if not on this machine


@dataclass(frozen=True, slots=True)
class Died:
    """In place of a batch: its workers died. body: the indices that could not be made, encoded;
    empty: of an iterable, or of no interest; num_in_vain: see GiveUp."""

    how: Exit | str
    body: bytes
    num_in_vain: int = 0


class Told(NamedTuple):
    """What a worker said with a batch. state: encoded; empty: it was not asked, or none moved."""

    chain: int
    state: bytes


# See wait_next; a batch can be anything else, None too, and is never asked for truth or equality.
ENDED, TIMED_OUT = object(), object()


@dataclass(slots=True)
class DriverStats:
    wire_nbytes: int = 0  # through sockets
    raw_nbytes: int = 0  # of tensors and arrays delivered
    num_started: int = 0
    num_away: int = 0  # batches that other machines made
    num_copied: int = 0  # batches copied out because the script holds too much
    why_slow_copies: str = ""  # where a batch came for which stream_copy would have paid


class Driver:
    """One loader's workers, from its iter() to its end."""

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
    ) -> None:
        """context: how processes are started; processes: with fork, one never-started Process a
        chain; fleet: other machines, which may help where workers are forked. held_limit_nbytes:
        what the script may keep in arenas before further batches are copied to ordinary memory;
        negative: all are, and it is no news."""
        reap()
        self.state = state
        self.stats = DriverStats(num_started=state.num_chains)
        self.prepare: Callable[[Any], Any] | None = None  # called on each batch as it arrives
        self._owner_pid = os.getpid()
        self._is_closed = False
        self._has_ended = False  # a chain's iterable, since wait_next told last
        self._held_limit_nbytes = held_limit_nbytes
        self._held_at_most_nbytes: float = math.inf  # as counted last, and all that came since
        self._room_nbytes = held_limit_nbytes if held_limit_nbytes >= 0 else machine_nbytes() // 2
        # Of a stateful job alone: what came with batches that have not been taken, with ends of
        # iterables, and what each slot's latest worker began its latest epoch with.
        self.states: dict[int, Told] = {}
        self.ends: list[tuple[int, Told]] = []
        self._begun: dict[int, tuple[int, bytes]] = {}
        self._keeps_states = job.worker_states is not None
        self._exits: dict[int, Exit | str] = {}  # of slots, the last
        self.taken_id = -1  # task of the batch that left last
        self._channels: dict[int, Channel] = {}
        self._bodies: dict[int, bytes] = {}  # index lists of the tasks that are owed
        self._poll = select.poll()
        self._slot_of_fd: dict[int, int] = {}
        self._unsent: set[Channel] = set()
        is_forked = context.get_start_method() == "fork"
        self._arena_nbytes = arena_nbytes
        self._local_lenders = [
            forks.pool.take(arena_nbytes, not is_forked) for _ in range(state.num_slots)
        ]
        self._marks = Marks(state.num_slots + 1, not is_forked)
        # Of each slot's latest worker. The witness makes no batch.
        self._lenders: dict[int, Lender | None] = dict(enumerate([*self._local_lenders, None]))
        self._template = (
            Template(processes, self._body_of(job), state.num_chains)
            if is_forked
            else Spawned(context, main, job, self._memory_of, state.num_chains)
        )
        self.why_no_replacement = self._template.why_no_replacement
        if self.why_no_replacement:
            state.max_deaths = 1
        self._helpers: Helpers | None = None
        self._heard_s = 0.0  # when they were asked for news
        self._rest_deadline: Deadline | None = Deadline(REST_AFTER_S)
        self._is_awaiting = False  # what is taken in has come just now: the loop was waiting
        try:
            self._begin(fleet)
        except BaseException:
            self.close(0.0)
            raise

    def _begin(self, fleet: "Fleet | None") -> None:
        if fleet is not None and not fleet.is_gone and isinstance(self._template, Template):
            self._helpers = Helpers(fleet, self._template)
        if self._helpers is not None:
            self._poll.register(self._helpers, select.POLLIN)
        self._ends_fd = self._template.fileno()  # -1: never again
        self._poll.register(self._ends_fd, select.POLLIN)
        forks.watch(self)
        for slot in range(self.state.num_chains):
            self._start(Start(slot))

    def _memory_of(self, slot: int) -> tuple[Arena | None, tuple[Marks, int]]:
        lender = self._local_lenders[slot]
        return None if lender is None else lender.arena, (self._marks, slot)

    def _body_of(self, job: Job) -> Callable[[int, socket.socket], None]:
        arenas = [None if lender is None else lender.arena for lender in self._local_lenders]
        arenas.append(None)
        marks = self._marks

        def body(slot: int, sock: socket.socket) -> None:
            if slot == SHIPPER:
                from stoker.plane.ship import ship

                ship(job, sock)
            else:
                main(job, slot, sock, arenas[slot], (marks, slot))

        return body

    # -- the iterator's calls --------------------------------------------------------------------

    def draw(self, indices: object, wants_state: bool = False) -> None:
        """The sampler's next index list, to be made into a batch."""
        self._do(self.state.step(Drawn(dumps(indices), wants_state)))

    def wait_next(self, deadline: Deadline) -> Any:
        """The batch that leaves next, a Failed or a Died; TIMED_OUT when the deadline passes.

        ENDED once an iterable of a chain has ended meanwhile: others may be sent more now, or
        nothing may be left.
        """
        reap()
        self._tell_returned()
        if self._helpers is not None:
            self._helpers.work.ended()
            if now_s() - self._heard_s > HEAR_EVERY_S:
                self._helpers.size(self.state.num_usable)
                self._hear_helpers()
        if self.prepare is not None:
            self.receive_ready()
        if self._rest_deadline is not None:
            self._wait_first(self._rest_deadline)
        while (taken := self.state.reorder.take()) is None:
            if self._has_ended:
                self._has_ended = False
                return ENDED
            if not self._receive_or_tell(deadline):
                return TIMED_OUT
        task_id, batch = taken
        self.taken_id = task_id
        self._do(self.state.taken(task_id))
        if self._helpers is not None:
            self._helpers.work.began()
        return batch

    def receive_ready(self) -> None:
        """Take in what has come, of each worker as much as one read brings. Never waits."""
        for slot in tuple(self._channels):
            self._receive_all_from(slot)

    def restart(self, shared_seed: int | None) -> None:
        """The next epoch begins on the same workers. shared_seed: of a DataPipe."""
        self._has_ended = False
        self._apply(Restarted(dumps(shared_seed)))

    def wait_begun(self, slot: int, epoch: int, deadline: Deadline) -> Any:
        """What a worker of a stateful job begins an epoch with, encoded, or as `wait_next`.

        epoch: counted from iter(), on living workers.
        """
        self._start_rest()
        while (begun := self._begun.get(slot)) is None or begun[0] < epoch:
            if slot not in self._channels:  # for good: a replacement would have been started
                return Died(self._exits.get(slot, "it could not be brought back"), b"")
            if not self._receive(deadline):
                return TIMED_OUT
        return begun[1]

    def wait_pid(self, chain: int) -> int | None:
        self._start_rest()
        slot = self.state.slot_of(chain)
        return self._cluster_of(slot).wait_pid(slot, Deadline(EXIT_WAIT_S))

    def _cluster_of(self, slot: int) -> "Template | Spawned | Away":
        helpers = self._helpers
        return self._template if helpers is None or slot not in helpers.slots else helpers.away

    def node_of(self, slot: int) -> str:
        """Where the slot's worker is; empty: on this machine."""
        return "" if self._helpers is None else self._helpers.node_of(slot)

    def is_to_blame(self, died: Died) -> bool:
        """Whether stoker failed in the worker, or the process that starts workers has ended."""
        failed = isinstance(died.how, Exit) and died.how.code == FAILED
        return failed or (isinstance(self._template, Template) and self._template.is_gone)

    def name_of(self, slot: int) -> str:
        """What multiprocessing calls the worker."""
        return self._template.names[slot]

    def wait_exit(self, chain: int, deadline: Deadline) -> Exit | None:
        self._start_rest()
        slot = self.state.slot_of(chain)
        return self._cluster_of(slot).wait_exit(slot, deadline)

    def signal(self, chain: int, signum: int) -> None:
        self._start_rest()
        slot = self.state.slot_of(chain)
        self._cluster_of(slot).signal(slot, signum)

    def close(self, grace_s: float) -> None:
        """End the workers: ask, wait until each has flushed and left, then terminate, then kill.

        Idempotent; nothing in a forked copy. Processes may still be unmapping memory after it.
        """
        if os.getpid() != self._owner_pid or self._is_closed:
            return
        self._is_closed = True
        forks.forget(self)
        self.state.step(Closed())
        self._template.drop_rest()
        if self._helpers is not None:  # torch joins its workers; nothing of these is here
            for slot in tuple(self._helpers.slots & self._channels.keys()):
                self._hang_up(slot)
            self._helpers.close()
        for channel in self._channels.values():
            channel.finish()
        deadline = Deadline(grace_s)
        try:
            at_work = [slot for slot in tuple(self._channels) if not self._drain(slot, deadline)]
        finally:
            for slot in tuple(self._channels):  # where a handler of the script's has ended the wait
                self._hang_up(slot)
            self._template.close(deadline.left_s() or 0.0)
        for slot, lender in enumerate(self._local_lenders):
            if lender is not None and slot not in at_work:  # else it may yet be written to
                forks.pool.give(lender)
        forks.look_at_witnesses()

    @property
    def lenders(self) -> list[Lender]:
        away = [] if self._helpers is None else self._helpers.lenders
        return [lender for lender in (*self._local_lenders, *away) if lender is not None]

    def abandon(self) -> None:
        """In a forked child: the sockets are the parent's affair."""
        for channel in self._channels.values():
            channel.close()

    def _wait_first(self, deadline: Deadline) -> None:
        """Until the first batch has come or the others are wanted as well; then start them."""
        while self.state.reorder.num_held == 0 and self._receive(deadline):
            continue
        self._start_rest()

    def _start_rest(self) -> None:
        if self._rest_deadline is not None:
            self._rest_deadline = None
            self._template.start_rest()

    # -- frames in ---------------------------------------------------------------------------

    def _receive_or_tell(self, deadline: Deadline) -> bool:
        """As `_receive`; or the state is told that the batch that leaves next is late."""
        helpers, slot, task_id = self._helpers, self.state.next_slot, self.state.reorder.next_id
        late_at_s = None
        if helpers is not None and slot is not None:
            late_at_s = helpers.late.late_at_s(slot, task_id)
        if helpers is None or slot is None or late_at_s is None:
            return self._receive(deadline)
        late = Deadline(late_at_s - now_s())
        has_come = self._receive(late if late.is_before(deadline) else deadline)
        if not has_come and late.is_over():
            self._apply(Late(slot, task_id, *helpers.late.told(slot, task_id, now_s())))
            return True
        return has_come

    def _receive(self, deadline: Deadline) -> bool:
        """Take in at least one frame. False when the deadline passed first."""
        slot = self.state.next_slot
        if slot is not None and self._receive_from(slot):
            return True
        for channel in tuple(self._unsent):
            channel.flush()
            if not channel.has_unsent:
                self._unsent.discard(channel)
                self._poll.modify(channel, select.POLLIN)
        left_ms = deadline.left_ms()
        if self._helpers is not None and not self._helpers.is_gone():
            silent_ms = self._helpers.silent_ms
            left_ms = silent_ms if left_ms is None else min(left_ms, silent_ms)
        began_s = now_s()
        ready = self._poll.poll(left_ms)
        self._is_awaiting = now_s() - began_s > HERE_S
        for fd, _ in ready:
            self._receive_all_from(self._slot_of_fd.get(fd))
            if self._helpers is not None and fd == self._helpers.fd:
                self._hear_helpers()
            if fd == self._ends_fd:
                self._hear_ends()
        self._is_awaiting = False
        for ended in self._template.take_ended():
            self._lose_ended(ended)
        if self._helpers is not None and not ready and left_ms == self._helpers.silent_ms:
            self._helpers.end_silent()
            self._hear_helpers()
        return bool(ready) or not deadline.is_over()

    def _hear_ends(self) -> None:
        """Workers here that have ended; their sockets may be open in what they started."""
        self._template.hear()
        if isinstance(self._template, Template) and self._template.is_gone:
            self._poll.unregister(self._ends_fd)
            self._ends_fd = -1

    def _lose_ended(self, slot: int) -> None:
        if self._cluster_of(slot) is not self._template:
            return
        channel = self._channels.get(slot)
        while self._channels.get(slot) is channel and self._receive_from(slot):
            continue  # what it said before, and maybe its socket's end: then another has its place
        if channel is not None and self._channels.get(slot) is channel:
            self._lose(slot)

    def _hear_helpers(self) -> None:
        """Places on other machines that came or went, and what this one can spare."""
        helpers = self._helpers
        assert helpers is not None
        self._heard_s = now_s()
        if helpers.is_gone() and helpers.fd >= 0:
            self._poll.unregister(helpers.fd)
            helpers.fd = -1
        offer = helpers.offer()
        if offer is not None:
            self._apply(offer)

    def _receive_all_from(self, slot: int | None) -> None:
        """Every frame that one read brings: poll() would not see the second. For more it will tell."""
        while slot is not None and self._receive_from(slot):
            channel = self._channels.get(slot)
            if channel is None or not channel.has_unread:
                return

    def _receive_from(self, slot: int) -> bool:
        """One frame of a slot, or its end. False when nothing has come."""
        channel = self._channels.get(slot)
        if channel is None:
            return False
        try:
            frame = channel.receive_nowait()
        except ConnectionLost:
            self._lose(slot)
            return True
        if frame is None:
            return False
        self._take_in(slot, frame)
        return True

    def _take_in(self, slot: int, frame: Frame) -> None:
        header, extra = frame.header, frame.extra
        if header.kind in (Kind.BATCH, Kind.FAILURE):
            if header.flags & Flag.WIRE:
                extra, wire_nbytes = unpack_wire(extra)
                self.stats.wire_nbytes += wire_nbytes
                self.stats.num_away += 1
            if self._helpers is not None:
                work_s = header.work_us / 1e6
                self._helpers.measure(slot, header.task_id, work_s, self._is_awaiting)
            batch = self._decode(slot, frame)
            body = self._bodies.pop(header.task_id, b"")
            if header.kind == Kind.FAILURE:
                batch = Failed(batch, chain_of(slot), header.task_id, body, self.node_of(slot))
            elif self.prepare is not None:
                batch = self.prepare(batch)
            has_come = FreeArrived if header.flags & Flag.FREE else Arrived
            self._apply(has_come(slot, header.task_id, batch))
            if self._keeps_states:
                told = bytes(extra) if header.flags & Flag.STATE else b""
                self.states[header.task_id] = Told(header.chain, told)
            if header.flags & Flag.POINT:
                self._apply(Watched(header.chain, pickle.loads(extra)))
        elif header.kind == Kind.ENDED:
            self._bodies.pop(header.task_id, None)
            self._has_ended = True
            if self._keeps_states:
                self.ends.append((header.task_id, Told(slot, bytes(frame.extra))))
            self._apply(Ended(slot, header.task_id))
        elif header.kind == Kind.STATE:
            self._begun[slot] = header.task_id, bytes(frame.extra)
        elif header.kind == Kind.REFUSED:
            self._apply(Refused(slot, header.task_id, bytes(frame.extra).decode()))
        elif header.kind == Kind.ASTRAY:
            self._apply(Astray(slot))
        elif header.kind == Kind.GREETING:
            self._apply(Greeted(slot, *pickle.loads(frame.extra)))

    def _decode(self, slot: int, frame: Frame) -> Any:
        header, payload, lender = frame.header, frame.payload, self._lenders[slot]
        table = payload[: header.table_nbytes()]
        blob = payload[len(table) :]
        copies = self._holds_too_much()
        if header.blob_offset != INLINE:
            assert lender is not None
            blob = lender.lend(header.blob_offset, header.blob_nbytes)
        if not header.flags & Flag.WIRE:
            self.stats.wire_nbytes += len(payload)
        nbytes = sum(nbytes for _, nbytes, _ in PLACE.iter_unpack(table))
        self.stats.raw_nbytes += nbytes
        if nbytes >= STREAM_NBYTES:
            self.stats.why_slow_copies = WHY_NONE
        self._held_at_most_nbytes += nbytes + header.blob_nbytes
        if nbytes * self.state.max_held > self._room_nbytes:
            self.state.max_held = self._room_nbytes // nbytes
        self.stats.num_copied += copies and self._held_limit_nbytes >= 0
        return decode(table, header.num_storages, header.stream_nbytes, blob, lender, copies)

    def _holds_too_much(self) -> bool:
        if self._held_at_most_nbytes > self._held_limit_nbytes:
            self._held_at_most_nbytes = sum(lender.held_nbytes() for lender in self.lenders)
        return self._held_at_most_nbytes > self._held_limit_nbytes

    # -- actions out ---------------------------------------------------------------------------

    def _apply(self, event: Event) -> None:
        self._do(self.state.step(event))

    def _do(self, actions: list[Any]) -> None:
        for action in actions:
            if isinstance(action, Ask):
                self._ask(action)
            elif isinstance(action, Start):
                self.stats.num_started += 1
                self._start(action)
            elif isinstance(action, Resume):
                self._send(action.slot, Kind.RESUME, action.seed)
            elif isinstance(action, Rerun):
                flags = action.wants_state * Flag.STATE
                self._send(action.slot, Kind.RERUN, action.body, action.num_batches, flags)
            elif isinstance(action, Reload):
                extra = pickle.dumps((action.point, action.body))
                self._send(action.slot, Kind.RELOAD, extra)
            elif isinstance(action, Finish):
                self._hang_up(action.slot)
            elif isinstance(action, Kill):
                self._kill(action.slot)
            elif isinstance(action, GiveUp):
                self._bodies.pop(action.task.id, None)
                body = b"" if self.state.is_iterable else action.task.body
                died = Died(action.how, body, action.num_in_vain)
                self.state.reorder.hold(action.task.id, died)

    def _ask(self, ask: Ask) -> None:
        channel = self._channels.get(ask.slot)
        if channel is None:
            return  # it is being lost: the loss asks again
        task, lender = ask.task, self._lenders[ask.slot]
        if self._helpers is not None and not ask.quiet:
            self._helpers.late.asked(ask.slot, task.id, now_s())
        extra = _packed(lender.take_returned()) if lender is not None else b""
        if not ask.quiet and not self.state.is_iterable:  # whose index lists say nothing
            self._bodies[task.id] = task.body
        head = pack(
            Kind.TASK,
            flags=ask.quiet * Flag.QUIET
            | ask.free * Flag.FREE
            | ask.watch * Flag.POINT
            | task.wants_state * Flag.STATE,
            task_id=task.id,
            chain=task.chain,
            stream_nbytes=len(task.body),
            blob_nbytes=len(task.body),
            extra_nbytes=len(extra),
        )
        self._say(channel, head, task.body, extra)

    def _send(self, slot: int, kind: Kind, extra: bytes, task_id: int = -1, flags: int = 0) -> None:
        channel = self._channels.get(slot)
        if channel is not None:  # else it is being lost: the loss asks again
            head = pack(kind, flags=flags, task_id=task_id, extra_nbytes=len(extra))
            self._say(channel, head, extra)

    def _say(self, channel: Channel, *parts: bytes | memoryview) -> None:
        channel.send(*parts)
        if channel.has_unsent and channel not in self._unsent:
            self._unsent.add(channel)
            self._poll.modify(channel, select.POLLIN | select.POLLOUT)

    def _tell_returned(self) -> None:
        """Not those of other machines, whose fresh memory is touched once: the next task tells."""
        away: set[int] = set() if self._helpers is None else self._helpers.slots
        for slot in self._channels.keys() - away:
            lender = self._lenders[slot]
            returned = lender.take_returned(AT_ONCE_NBYTES) if lender is not None else []
            if returned:
                extra = _packed(returned)
                self._say(self._channels[slot], pack(Kind.RETURNED, extra_nbytes=len(extra)), extra)

    def _start(self, start: Start) -> None:
        lender: Lender | None
        if start.away and self._helpers is not None:
            sock, lender = self._helpers.start(start.slot, self._arena_nbytes)
        else:
            self._marks.clear(start.slot)
            sock = self._template.start(start.slot, start.after_s)
            lender = self._local_lender(start.slot)
            if self._helpers is not None:
                self._helpers.stay(start.slot)
        self._lenders[start.slot] = lender
        channel = self._channels[start.slot] = Channel(descriptors.kept(sock))
        self._slot_of_fd[channel.fileno()] = start.slot
        self._poll.register(channel, select.POLLIN)
        if lender is not None:
            lender.take_returned()  # the new worker has never heard of them
        lent = lender.lent() if lender is not None else []
        extra = pack_begin(lent, pickle.dumps((start.point, start.must_greet)))
        self._say(channel, pack(Kind.BEGIN, extra_nbytes=len(extra)), extra)

    def _local_lender(self, slot: int) -> Lender | None:
        return self._local_lenders[slot] if slot < len(self._local_lenders) else None

    def _kill(self, slot: int) -> None:
        """End a worker whose state is of no more use."""
        if slot in self._channels:
            cluster = self._cluster_of(slot)
            self._hang_up(slot)
            if cluster is self._template:  # the others hear of it when they can be reached
                self._start_rest()  # one that is put off could not be seen to end
            cluster.signal(slot, signal.SIGKILL)
            if cluster is self._template:
                cluster.wait_exit(slot, Deadline(EXIT_WAIT_S))

    def _lose(self, slot: int) -> None:
        """A worker closed its socket by itself: it is dead or dying."""
        if self._cluster_of(slot) is not self._template:
            self._lose_away(slot)
            return
        # First the waits: where a handler of the script's ends one, the next next() is told again.
        how = self._template.wait_exit(slot, Deadline(EXIT_WAIT_S))
        if how is None:  # alive without a socket, or the template is gone too
            self._template.signal(slot, signal.SIGKILL)
            how = self._template.wait_exit(slot, Deadline(EXIT_WAIT_S)) or Exit(
                slot, self._template.wait_pid(slot, Deadline(0)) or -1, -signal.SIGKILL
            )
        self._hang_up(slot)
        self._exits[slot] = how
        self._apply(Lost(slot, how, False, self._marks.begun(slot), how.code == FAILED))

    def _lose_away(self, slot: int) -> None:
        """As `_lose`; where the machine or the way to it was lost, no task is to blame."""
        assert self._helpers is not None
        away = self._helpers.away
        self._hang_up(slot)
        how = away.wait_exit(slot, Deadline(EXIT_WAIT_S)) or Exit(slot, -1, -signal.SIGKILL)
        self._exits[slot] = how
        is_machine = bool(away.why_lost(slot))
        self._hear_helpers()  # first that its place is gone, or another would be started there
        is_given_back, begun, is_ours = (
            away.was_given_back(slot),
            away.begun(slot),
            how.code == FAILED,
        )
        self._apply(Lost(slot, None if is_machine else how, is_given_back, begun, is_ours))

    def _hang_up(self, slot: int) -> None:
        channel = self._channels.pop(slot)
        self._unsent.discard(channel)
        self._poll.unregister(channel)
        del self._slot_of_fd[channel.fileno()]
        channel.close()
        if self._helpers is not None:
            self._helpers.left(slot)
            self._helpers.late.gone(slot)

    def _drain(self, slot: int, deadline: Deadline) -> bool:
        """Read and drop until the worker has closed its end or is known to have ended, or time is
        over. Whether it has."""
        channel = self._channels[slot]
        is_here = self._cluster_of(slot) is self._template
        poll = select.poll()
        poll.register(channel, select.POLLIN)
        if is_here and self._ends_fd >= 0:
            poll.register(self._ends_fd, select.POLLIN)
        has_left = False
        try:
            while channel.receive_nowait() is not None or poll.poll(deadline.left_ms()):
                if is_here and self._template.wait_exit(slot, Deadline(0)) is not None:
                    has_left = True  # what it started may hold its socket
                    break
        except ConnectionLost:
            has_left = True
        self._hang_up(slot)
        return has_left


def _packed(offsets: list[int]) -> bytes:
    return b"".join(offset.to_bytes(8, "little") for offset in offsets)
