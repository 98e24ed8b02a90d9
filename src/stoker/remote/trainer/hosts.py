"""Serves the hosts that have dialled: hands them jobs, starts workers on them, relays batches.

Promise: no word of a host's ends the receiver; a host that is silent, or says what none of ours
says, is lost, and its workers with it.
Owner: the thread that owns the sockets.
"""

import json
import os
import signal
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from stoker.clock import now_s
from stoker.poll_loop import PollLoop
from stoker.remote.engines.hosts import cpus_of_host
from stoker.remote.net import control
from stoker.remote.net.control import Cause
from stoker.remote.net.link import LOST_S, Link, Message, Word
from stoker.remote.net.relay import TrainerRelay
from stoker.scheduler.tasks.slot import Slot
from stoker.wire.arena import Arena
from stoker.wire.channel import Channel, ConnectionLost

GIVEN_BACK = "its machine was given back"


@dataclass(eq=False)
class _Job:
    """A loader's job. parts: by digest; ready: hosts that have unpacked it."""

    number: int
    manifest: bytes = b""
    parts: dict[str, memoryview] = field(default_factory=dict)
    ready: set["_Host"] = field(default_factory=set)


@dataclass(eq=False)
class _Host:
    link: Link
    name: str
    node: str
    heard_s: float
    num_heard_nbytes: int = 0
    workers: dict[int, "_Worker"] = field(default_factory=dict)
    num_batches: int = 0
    num_told: tuple[int, int] = (0, 0)  # batches and bytes, when the run was published last
    num_cpus: int = 1  # workers of each job that it may have; 0: the engine ends it now


@dataclass(eq=False)
class _Worker:
    """A worker on a host. generation: counts the workers of its slot."""

    relay: TrainerRelay
    host: _Host
    job: int
    slot: Slot
    generation: int
    pid: int = -1
    is_wanted: bool = True  # else the trainer hung up, and only asks how it ends


class Hosts:
    """All hosts of a trainer, with the jobs and the workers that they have.

    say: sends a message to the trainer; show: prints text of a host's, on stdout (1) or stderr (2);
    has_work: called with each batch; do_posted: does what other threads have asked for.
    """

    def __init__(
        self,
        loop: PollLoop,
        say: Callable[[control.Message], None],
        show: Callable[[int, bytes], None],
        has_work: Callable[[], None],
        do_posted: Callable[[], None],
    ) -> None:
        self._loop, self._say, self._print = loop, say, show
        self._has_work, self._do_posted = has_work, do_posted
        self._hosts: dict[int, _Host] = {}
        self._jobs: dict[int, _Job] = {}
        self._workers: dict[int, _Worker] = {}
        self._arenas: dict[int, Arena] = {}
        self._next_lane = 0
        self._num_cpus: dict[str, int] = {}  # by machine, as the engine named it and told last
        self._decodes = False  # the decoders are loaded
        self._differed: dict[str, bytes] = {}  # by places' keys: what is told of those

    @property
    def ends(self) -> list[Link | Channel]:
        """Connections to hosts and to the trainer's side of workers: each may have unsent bytes."""
        links: list[Link | Channel] = [host.link for host in self._hosts.values()]
        return links + [worker.relay.channel for worker in self._workers.values()]

    def check_timeouts(self, now: float) -> None:
        for host in tuple(self._hosts.values()):
            if host.link.num_received_nbytes != host.num_heard_nbytes:
                host.num_heard_nbytes, host.heard_s = host.link.num_received_nbytes, now
            elif now - host.heard_s > LOST_S:
                self._lose(host, f"it was silent for {LOST_S} s")

    def beat(self) -> None:
        """Tell every host that this process is alive."""
        for host in self._hosts.values():
            host.link.send(Word.BEAT)

    def rates(self, seconds: float) -> dict[str, dict[str, float]]:
        """Return workers, batches/s and bytes/s of each node, in the seconds since the last call."""
        nodes: dict[str, dict[str, float]] = {}
        for host in self._hosts.values():
            node = nodes.setdefault(
                host.node, {"workers": 0, "batches_per_s": 0, "nbytes_per_s": 0}
            )
            nbytes = host.link.num_received_nbytes
            node["workers"] += host.num_cpus
            node["batches_per_s"] += (host.num_batches - host.num_told[0]) / seconds
            node["nbytes_per_s"] += (nbytes - host.num_told[1]) / seconds
            host.num_told = host.num_batches, nbytes
        return nodes

    # -- what hosts say ----------------------------------------------------------------------------

    def welcome(self, sock: socket.socket, name: str, node: str) -> None:
        link = Link(sock)
        host = _Host(link, name, node, now_s(), num_cpus=cpus_of_host(name, self._num_cpus))
        link.room = lambda message: self._room(host, message)
        self._hosts[link.fileno()] = host
        self._loop.add(link.fileno(), lambda: self._hear_host(host))
        if self._decodes:
            link.send(Word.DECODES)
        for head in self._differed.values():
            link.send(Word.REMEMBERED, 0, head)
        for job in self._jobs.values():
            if job.manifest:
                link.send(Word.JOB, job.number, job.manifest)
        self._say(control.Joined(name, now_s(), host.num_cpus, is_new=True))
        self._hear_host(host)  # TLS may have read ahead

    def may_be_coded(self) -> None:
        self._decodes = True
        for host in self._hosts.values():
            host.link.send(Word.DECODES)

    def _room(self, host: _Host, message: Message) -> Sequence[memoryview] | None:
        worker = host.workers.get(message.lane)
        if worker is None or not worker.is_wanted or message.kind != Word.FRAME:
            return None
        return worker.relay.room(message)

    def _hear_host(self, host: _Host) -> None:
        try:
            while (message := host.link.receive_nowait()) is not None:
                self._take_in(host, message)
        except ConnectionLost as error:
            self._lose(host, str(error))
        except Exception as error:  # no word of a peer's may end this process
            self._lose(host, f"it said what nobody of ours says: {error!r}")

    def _take_in(self, host: _Host, message: Message) -> None:
        worker, job = host.workers.get(message.lane), self._jobs.get(message.lane)
        match message.kind:
            case Word.FRAME if worker is not None and worker.is_wanted:
                self._has_work()
                host.num_batches += worker.relay.deliver(message)
            case Word.WANT if job is not None:
                for digest in _digests(message.head):
                    host.link.send(Word.PART, 0, digest.encode(), [job.parts[digest]])
            case Word.READY if job is not None:
                job.ready.add(host)
                self._tell_capacity(job)
            case Word.CANNOT if job is not None:
                if host in job.ready:
                    job.ready.discard(host)
                    self._tell_capacity(job)
                why = bytes(message.head).decode()
                self._say(control.Cannot(job.number, host.node, why))
            case Word.STARTED if worker is not None:
                worker.pid = int(bytes(message.head))
                who = worker.job, worker.slot, worker.generation, worker.pid
                self._say(control.Started(*who, host.node, host.name))
            case Word.TEXT:
                self._print(message.lane, bytes(message.head))
            case Word.REMEMBERED:
                self._take_in_remembered(host, bytes(message.head))
            case Word.ENDED if worker is not None:
                self._end(worker, _ended(worker, message.head))

    def _take_in_remembered(self, host: _Host, head: bytes) -> None:
        """Tell the trainer what one machine remembers, and the others of what has differed there."""
        told = control.decode(head)
        if not isinstance(told, control.Remembered) or not _is_well_formed(told):
            raise TypeError(told)
        self._say(told._replace(host=host.name))
        if told.has_differed:
            self.tell_differed(told)

    def _lose(self, host: _Host, why: str) -> None:
        self._do_posted()  # the engine may have told just now that it is given back
        if self._hosts.pop(host.link.fileno(), None) is None:
            return
        self._loop.remove(host.link.fileno())
        for job in self._jobs.values():
            if host in job.ready:
                job.ready.discard(host)
                self._tell_capacity(job)
        cause, why_lost = Cause.LOST, f"{host.node} was lost: {why}"
        if host.num_cpus == 0:
            cause, why_lost = Cause.GIVEN_BACK, GIVEN_BACK
        for worker in tuple(host.workers.values()):
            who = worker.job, worker.slot, worker.generation, worker.pid
            self._end(worker, control.Ended(*who, None, cause, why_lost))
        host.link.close()
        why = f"{host.node}: {why}"
        self._say(control.Left(host.name, now_s(), why, is_lost=host.num_cpus > 0))

    def resize(self, machine: str, num_cpus: int) -> None:
        """Set how many workers of each job a machine may have; 0: the engine ends its hosts now."""
        self._num_cpus[machine] = num_cpus  # they may be at the door; no other has its name
        for host in tuple(self._hosts.values()):
            before, host.num_cpus = host.num_cpus, cpus_of_host(host.name, self._num_cpus)
            if host.num_cpus == before:
                continue
            self._say(control.Joined(host.name, now_s(), host.num_cpus, is_new=False))
            for job in self._jobs.values():
                if host in job.ready:
                    self._tell_capacity(job)
            if host.num_cpus < before and num_cpus:  # of none, all end with their host
                self._end_surplus(host)

    def _end_surplus(self, host: _Host) -> None:
        """End the newest workers of each job that has more on a host than it may have now."""
        of_jobs: dict[int, list[_Worker]] = {}
        for worker in host.workers.values():
            if worker.is_wanted:  # else it is ending
                of_jobs.setdefault(worker.job, []).append(worker)
        for workers in of_jobs.values():
            for worker in workers[host.num_cpus :]:
                who = worker.job, worker.slot, worker.generation, worker.pid
                host.link.send(Word.SIGNAL, worker.relay.lane, str(int(signal.SIGKILL)).encode())
                self._end(worker, control.Ended(*who, None, Cause.GIVEN_BACK, GIVEN_BACK))

    def _end(self, worker: _Worker, how: control.Ended) -> None:
        """Tell the trainer how a worker ended, before it sees that the worker's socket ended."""
        self._say(how)
        self._drop(worker)

    def _drop(self, worker: _Worker) -> None:
        self._hang_up(worker)
        worker.host.workers.pop(worker.relay.lane, None)

    def _hang_up(self, worker: _Worker) -> None:
        if worker.is_wanted:
            worker.is_wanted = False
            del self._workers[worker.relay.lane]
            worker.host.link.drop_body(worker.relay.lane)
            self._loop.remove(worker.relay.channel.fileno())
            worker.relay.channel.close()

    # -- what the trainer wants --------------------------------------------------------------------

    def tell_differed(self, told: control.Remembered) -> None:
        """Have a place left alone on all machines, of which a sample has differed on one."""
        if told.key in self._differed:
            return
        head = self._differed[told.key] = control.encode(told._replace(counts=[]))
        for host in self._hosts.values():
            host.link.send(Word.REMEMBERED, 0, head)

    def open(self, number: int) -> None:
        """Add a job that is being packed."""
        self._jobs[number] = _Job(number)

    def drop_arena(self, number: int) -> None:
        """Let go of an arena that no worker has."""
        self._arenas.pop(number, None)

    def announce(self, number: int, manifest: bytes, parts: dict[str, memoryview]) -> None:
        """Offer every host a job that has been packed. parts: by digest."""
        job = self._jobs.get(number)
        if job is not None:
            job.manifest, job.parts = manifest, parts
            fingerprint = json.loads(manifest)["fingerprint"]
            self._say(control.Packed(job.number, fingerprint))
            for host in self._hosts.values():
                host.link.send(Word.JOB, job.number, manifest)

    def _tell_capacity(self, job: _Job) -> None:
        cpus = {host.name: host.num_cpus for host in job.ready}
        self._say(control.Capacity(job.number, cpus))

    def start(self, start: control.Start, fd: int, arena_fd: int) -> None:
        number, slot, generation = who = start.job, start.slot, start.generation
        channel = Channel(socket.socket(fileno=fd))
        if start.arena not in self._arenas:
            self._arenas[start.arena] = Arena(start.arena_nbytes, can_travel=True, fd=arena_fd)
        else:
            os.close(arena_fd)
        job = self._jobs.get(number)
        host = self._least_busy(job) if job is not None else None
        if host is None:
            why = "no machine is left for it"
            self._say(control.Ended(*who, -1, None, Cause.LOST, why))
            channel.close()
            return
        self._next_lane += 1
        relay = TrainerRelay(self._next_lane, channel, self._arenas[start.arena], host.link)
        worker = _Worker(relay, host, number, slot, generation)
        self._workers[relay.lane] = host.workers[relay.lane] = worker
        host.link.send(Word.START, relay.lane, control.encode(control.Begin(number, slot)))
        self._loop.add(channel.fileno(), lambda: self._pump(worker))

    def _least_busy(self, job: _Job) -> _Host | None:
        """Return the host with the fewest workers of this job a CPU, then of all, or None."""
        return min(
            (host for host in job.ready if host.num_cpus),
            key=lambda host: (
                sum(worker.job == job.number for worker in host.workers.values()) / host.num_cpus,
                len(host.workers) / host.num_cpus,
            ),
            default=None,
        )

    def _pump(self, worker: _Worker) -> None:
        try:
            worker.relay.pump()
        except ConnectionLost:  # the trainer hung up: it wants nothing more of this worker
            worker.host.link.send(Word.HANG_UP, worker.relay.lane)
            self._hang_up(worker)

    def signal(self, who: tuple[int, Slot, int], signum: int) -> None:
        """Send a signal to a worker. who: its job, slot and generation."""
        for worker in [worker for host in self._hosts.values() for worker in host.workers.values()]:
            if (worker.job, worker.slot, worker.generation) == who:
                worker.host.link.send(Word.SIGNAL, worker.relay.lane, str(signum).encode())

    def close(self, number: int) -> None:
        self._jobs.pop(number, None)
        for host in self._hosts.values():
            for worker in [worker for worker in host.workers.values() if worker.job == number]:
                self._drop(worker)
            host.link.send(Word.FORGET, number)


def _is_well_formed(told: control.Remembered) -> bool:
    """Whether the fields are of their types, of which `decode` tells nothing. Raises ValueError for a
    key of no hex digits."""
    bytes.fromhex(told.key)
    are_numbers = type(told.counts) is list and all(type(each) is int for each in told.counts)
    return are_numbers and type(told.name) is str and type(told.why) is str


def _digests(head: memoryview) -> list[str]:
    message = control.decode(head)
    if not isinstance(message, control.Digests):
        raise TypeError(message)
    return message.of


def _ended(worker: _Worker, head: memoryview) -> control.Ended:
    how = control.decode(head)
    if not isinstance(how, control.Exited):
        raise TypeError(how)
    return control.Ended(
        worker.job, worker.slot, worker.generation, how.pid, how.code, begun=how.begun
    )
