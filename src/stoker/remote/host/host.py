"""Serves a trainer with CPUs of one machine: dials it, runs workers as told, and sends batches.

On a machine of more CPUs it forks further hosts, each for eight of them: see siblings.py.

Promise: it keeps nothing. If the trainer is gone or silent, or the engine that started it is gone,
its workers are killed and it ends, within LOST_S and the template's grace.
Owner: the one thread of the process.
"""

import contextlib
import os
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from functools import partial

import torch

from stoker import config
from stoker.clock import Deadline, now_s
from stoker.local.forks import die_with_parent
from stoker.local.sizing import CACHE_FRAC_OF_FREE, available_nbytes, machine_nbytes
from stoker.local.template import reap
from stoker.memory.phases import DIFFERED_AWAY, Counts
from stoker.memory.store import NUM_SEATS, Shelf, make_shelf
from stoker.poll_loop import PollLoop
from stoker.remote.engines.engine import Way
from stoker.remote.engines.hosts import CPUS_A_HOST, UNREACHABLE, host_name, num_hosts
from stoker.remote.host.job_process import JobProcess, is_stopped, kill
from stoker.remote.host.part_store import Needs, PartStore
from stoker.remote.host.siblings import Follower, Leader, fork_followers
from stoker.remote.net import control
from stoker.remote.net.auth import Hello, Pass, dial, pass_of, versions
from stoker.remote.net.link import BEAT_S, LOST_S, Link, Message, Word
from stoker.remote.net.printed import Flow
from stoker.remote.net.relay import HostRelay
from stoker.remote.net.ship import Manifest
from stoker.scheduler.tasks.slot import Role, Slot
from stoker.wire.arena import ARENA_NBYTES
from stoker.wire.channel import Channel, ConnectionLost
from stoker.wire.lossless import Encoder, warm
from stoker.wire.marks import NOTHING, Marks

DIAL_S = 10.0
# A stopped worker is given this long to be continued before it is taken for lost.
STOPPED_S = 1.5
TEXT_NBYTES = 64 << 10  # what a pipe holds
# Of a part that comes without a pause, between two looks at all else.
ROUND_NBYTES = 16 << 20


class _Worker:
    """A worker: its relay and job, the task that it has begun, its seat at the shelf, and since when
    it is stopped."""

    def __init__(self, relay: HostRelay, job: int, marks: Marks, seat: int | None) -> None:
        self.seat = seat
        self.relay = relay
        self.job = job
        self.marks = marks
        self.slot = Slot(Role.REMOTE, relay.lane)  # to the template
        self.pid = 0
        self.stopped_s: float | None = None
        self.is_leaving = False  # its socket has ended, and how it ended is not known yet


class _Leave(Exception):
    """Raised if the engine that started this host is gone, or gives it back."""


class Host:
    """The host process: its link to the trainer, its job processes and its workers."""

    def __init__(
        self,
        link: Link,
        node: str,
        arena_nbytes: int,
        encoder: Encoder | None,
        make_parts: Callable[[Needs, PollLoop], PartStore],
        shelf: Shelf | None,
        seats: Sequence[int],
        is_first: bool,
    ) -> None:
        """is_first: of the hosts of this machine, which share the shelf."""
        self._shelf, self._seats, self._is_first = shelf, seats, is_first
        self._told: dict[bytes, tuple[str, str, Counts]] = {}  # of the shelf's places
        # Places of which a sample differed on some machine, and why they are left alone.
        self._differed: dict[bytes, str] = {}
        self._link = link
        self._arena_nbytes = arena_nbytes
        self._encoder = encoder
        self._may_code = False  # before the trainer can decode, it would wait for its compiler
        self._manifests: dict[int, Manifest] = {}
        self._job_processes: dict[int, JobProcess] = {}
        self._is_ready: set[int] = set()
        self._workers: dict[int, _Worker] = {}
        self._loop = PollLoop()
        self._heard_s = self._spoke_s = now_s()
        self._num_heard_nbytes = 0
        self._has_unread = False
        self._printed: dict[int, tuple[int, int]] = {}  # pipes: of which job, and where they lead
        self._flow = Flow(self._tell_printed, node)
        self._parts = make_parts(Needs(self._ask, self._begin, self._refuse), self._loop)
        os.register_at_fork(after_in_child=self._abandon)

    def _abandon(self) -> None:
        """Close the host's sockets in a job process: the trainer must see the host's own end."""
        self._link.close()
        self._parts.abandon()
        for worker in self._workers.values():
            worker.relay.channel.close()
        for fd in self._printed:
            with contextlib.suppress(OSError):  # a fork of a fork
                os.close(fd)
        self._printed.clear()
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.close(null)

    def serve(self, parent: int) -> int:
        """Serve until the trainer is gone, or `parent` ends. Returns the exit code: 0 if it did.

        parent: file descriptor that ends with the engine of this host, or when that gives it back.
        """
        self._loop.add(self._link.fileno(), self._hear)
        self._loop.add(parent, self._leave)
        try:
            while now_s() - self._heard_s < LOST_S:
                self._loop.look_for_room([self._link, *self._channels()])
                self._loop.wait(0 if self._has_unread else BEAT_S / 2)
                if self._has_unread:  # TLS may hold it: nothing is left in the socket
                    self._hear()
                self._check_timeouts()
        except _Leave:
            return 0
        except ConnectionLost:
            return 1
        finally:
            for job_process in self._job_processes.values():
                job_process.close()
        return 1

    def _channels(self) -> list[Channel]:
        return [worker.relay.channel for worker in self._workers.values() if not worker.is_leaving]

    def _leave(self) -> None:
        raise _Leave

    def _say(self, word: Word, worker: int, head: bytes = b"") -> None:
        self._spoke_s = now_s()
        self._link.send(word, worker, head)

    def _check_timeouts(self) -> None:
        """Check timeouts, and kill workers that stay stopped."""
        self._link.flush()
        reap()
        now = now_s()
        if now - self._spoke_s < BEAT_S:
            return
        self._say(Word.BEAT, 0)
        self._tell_remembered()
        self._flow.check_timeouts()
        for worker in self._workers.values():
            if not worker.pid or not is_stopped(worker.pid):
                worker.stopped_s = None
            elif worker.stopped_s is None:
                worker.stopped_s = now
            elif now - worker.stopped_s > STOPPED_S:
                kill(worker.pid)

    # -- what the trainer says -------------------------------------------------------------------

    def room(self, message: Message) -> list[memoryview]:
        """Return the memory for a part of a job, for the link. Raises Garbled."""
        return [self._parts.room(bytes(message.head).decode(), message.body_nbytes)]

    def _hear(self) -> None:
        self._link.pause_at_nbytes = self._link.num_received_nbytes + ROUND_NBYTES
        while (message := self._link.receive_nowait()) is not None:
            self._heard_s = now_s()
            self._obey(message)
        self._has_unread = self._link.num_received_nbytes >= self._link.pause_at_nbytes
        if self._link.num_received_nbytes != self._num_heard_nbytes:  # in the middle of a message
            self._num_heard_nbytes, self._heard_s = self._link.num_received_nbytes, now_s()

    def _obey(self, message: Message) -> None:
        worker = self._workers.get(message.lane)
        match message.kind:
            case Word.JOB:
                manifest = self._manifests[message.lane] = Manifest.from_json(bytes(message.head))
                self._parts.add(message.lane, manifest)
            case Word.PART:
                self._parts.took(bytes(message.head).decode())
            case Word.FORGET:
                self._forget(message.lane)
            case Word.START:
                self._start(message.lane, control.decode(message.head))
            case Word.FRAME if worker is not None and not worker.is_leaving:
                worker.relay.deliver(message)
            case Word.HANG_UP if worker is not None and not worker.is_leaving:
                worker.relay.channel.finish()
            case Word.SIGNAL if worker is not None:
                self._job_processes[worker.job].template.signal(
                    worker.slot, int(bytes(message.head))
                )
            case Word.REMEMBERED:
                told = control.decode(message.head)
                if isinstance(told, control.Remembered):
                    self._differed[bytes.fromhex(told.key)] = told.why or DIFFERED_AWAY
            case Word.DECODES:
                self._may_code = True
                for each in self._workers.values():
                    each.relay.encoder = self._encoder

    def _ask(self, number: int, digests: list[str]) -> None:
        self._say(Word.WANT, number, control.encode(control.Digests(digests)))

    def _refuse(self, number: int, why: str) -> None:
        self._say(Word.CANNOT, number, why.encode())

    def _begin(self, number: int) -> None:
        """Fork a job's process: all its parts are here."""

        def take() -> list[memoryview]:
            pieces = self._parts.pieces(number)
            self._parts.close()
            return pieces

        try:
            manifest = self._manifests[number]
            job_process = JobProcess(manifest, take, self._arena_nbytes, self._shelf)
        except OSError as error:  # no process can be forked
            self._refuse(number, str(error))
            return
        self._job_processes[number] = job_process
        for fd, where in job_process.printed_fds.items():
            os.set_blocking(fd, False)
            self._printed[fd] = number, where
            self._loop.add(fd, partial(self._hear_printed, fd))
        self._loop.add(job_process.fileno(), partial(self._unpacked, number))
        self._loop.add(job_process.template.fileno(), partial(self._hear_template, number))

    def _hear_printed(self, fd: int) -> None:
        """Forward what a job's processes have printed so far: no more than the pipe holds."""
        try:
            text = os.read(fd, TEXT_NBYTES)
        except BlockingIOError:
            return
        if text:
            _, where = self._printed[fd]
            self._flow.take(where, text)
            return
        self._loop.remove(fd)
        os.close(fd)
        del self._printed[fd]

    def _tell_printed(self, number: int, text: bytes, on_sent: Callable[[], None]) -> None:
        self._link.send(Word.TEXT, number, text, on_sent=on_sent)

    def _tell_remembered(self) -> None:
        """Tell the trainer what is known of the shelf's places, if that is news."""
        if self._shelf is None or not self._is_first:
            return
        self._shelf.leave_alone(self._differed)
        places = self._shelf.places()
        for key, (name, why, counts) in places.items():
            if self._told.get(key) != (name, why, counts):
                has_differed = counts.num_differed > 0
                told = control.Remembered("", key.hex(), name, why, has_differed, list(counts))
                self._say(Word.REMEMBERED, 0, control.encode(told))
        self._told = places

    def _unpacked(self, number: int) -> None:
        """Tell the trainer that a job's process has unpacked it, or could not."""
        job_process = self._job_processes[number]
        self._loop.remove(job_process.fileno())
        why = job_process.wait_ready()
        if why:
            self._refuse(number, why)
        else:
            self._say(Word.READY, number)

    def _forget(self, number: int) -> None:
        self._manifests.pop(number, None)
        job_process = self._job_processes.pop(number, None)
        if job_process is not None:
            if job_process.fileno() in self._loop:
                self._loop.remove(job_process.fileno())
            if job_process.template.fileno() in self._loop:
                self._loop.remove(job_process.template.fileno())
            job_process.close()
        for worker in [worker for worker in self._workers.values() if worker.job == number]:
            self._hang_up(worker)
            del self._workers[worker.relay.lane]
        self._parts.forget(number)

    # -- workers ---------------------------------------------------------------------------------

    def _start(self, number: int, begin: control.Message) -> None:
        if not isinstance(begin, control.Begin):
            raise TypeError(begin)
        job_process = self._job_processes.get(begin.job)
        if job_process is None:
            self._tell_end(number, -1, 1, NOTHING)
            return
        taken = {worker.seat for worker in self._workers.values()}
        seat = next((each for each in self._seats if each not in taken), None)
        try:
            channel, arena, marks = job_process.start(Slot(Role.REMOTE, number), begin.slot, seat)
        except OSError:  # no memory, or no file descriptors
            self._tell_end(number, -1, 1, NOTHING)
            return
        encoder = self._encoder if self._may_code else None
        relay = HostRelay(number, channel, arena, self._link, encoder)
        worker = self._workers[number] = _Worker(relay, begin.job, marks, seat)
        self._loop.add(channel.fileno(), partial(self._pump, worker))

    def _tell_end(self, number: int, pid: int, code: int, begun: int) -> None:
        self._say(Word.ENDED, number, control.encode(control.Exited(pid, code, begun)))

    def _pump(self, worker: _Worker) -> None:
        for fd in [fd for fd, (job, _) in self._printed.items() if job == worker.job]:
            self._hear_printed(fd)  # before the batch that it belongs to
        try:
            worker.relay.pump()
            worker.relay.channel.flush()
        except ConnectionLost:
            self._hang_up(worker)
            self._hear_template(worker.job)

    def _hear_template(self, job: int) -> None:
        """Tell the trainer which workers began, how others ended, and that the job did."""
        template = self._job_processes[job].template
        fd = template.fileno()
        is_gone = template.wait_gone(Deadline(0))
        for worker in [worker for worker in self._workers.values() if worker.job == job]:
            if not worker.pid:
                worker.pid = template.wait_pid(worker.slot, Deadline(0)) or 0
                if worker.pid:
                    self._say(Word.STARTED, worker.relay.lane, str(worker.pid).encode())
            how = template.wait_exit(worker.slot, Deadline(0)) if worker.is_leaving else None
            if how is not None or (worker.is_leaving and is_gone):
                pid, code = (
                    (how.pid, how.code) if how is not None else (worker.pid, -signal.SIGKILL)
                )
                self._tell_end(worker.relay.lane, pid, code, worker.marks.begun(0))
                del self._workers[worker.relay.lane]
        if is_gone and fd in self._loop:
            self._loop.remove(fd)
            self._say(Word.CANNOT, job, b"its process has ended")

    def _hang_up(self, worker: _Worker) -> None:
        if not worker.is_leaving:
            worker.is_leaving = True
            self._loop.remove(worker.relay.channel.fileno())
            worker.relay.channel.close()


def run(said: Way) -> int:
    """Serve until the trainer or the engine is gone."""
    way = pass_of(said)
    torch.set_num_threads(1)
    if has_codec := not way.address.startswith("127."):  # no codec is as fast as loopback
        warm()  # before anybody waits: the first process of a machine compiles for seconds

    # One for all hosts of the machine, each with seats of its own.
    has_mounts = bool(os.environ.get(config.STORAGE))  # files have the other half
    shelf = make_shelf(int(CACHE_FRAC_OF_FREE * available_nbytes() / (2 if has_mounts else 1)))

    def follow(number: int, leader: socket.socket) -> int:
        die_with_parent()
        name = host_name(said["name"], number)
        make_parts = partial(Follower, leader=leader)
        return _serve(way, name, said, has_codec, make_parts, shelf, number)

    followers = fork_followers(num_hosts(said.get("num_cpus", 1)) - 1, follow)
    lead = partial(Leader, followers=followers)
    return _serve(way, said["name"], said, has_codec, lead, shelf, 0)


def _serve(
    way: Pass,
    name: str,
    said: Way,
    has_codec: bool,
    make_parts: Callable[[Needs, PollLoop], PartStore],
    shelf: Shelf | None,
    number: int,
) -> int:
    node = said["node"]
    hello: Hello = {"name": name, "node": node, "pid": os.getpid(), **versions(of_all=True)}
    for name_of_it in ("cannot", "note"):
        if told := said.get(name_of_it):
            hello[name_of_it] = str(told)
    try:
        link = Link(dial(way, hello, DIAL_S))
    except OSError:
        return UNREACHABLE  # it has ended meanwhile, or cannot be reached from here
    encoder = Encoder() if has_codec else None
    seats = range(CPUS_A_HOST * number, min(CPUS_A_HOST * (number + 1), NUM_SEATS))
    arena_nbytes = min(machine_nbytes(), ARENA_NBYTES)
    is_first = number == 0
    host = Host(link, node, arena_nbytes, encoder, make_parts, shelf, seats, is_first)
    link.room = host.room
    return host.serve(sys.stdin.fileno())
