"""Runs beside the trainer as the process that hosts dial: it receives batches and drives Ray.

    python -m stoker.remote.trainer.receiver      its control socket is file descriptor 0

Promise: the training process pays neither for sockets between machines nor for Ray's threads. It
ends when the trainer does, in any way, and everything that it asked the cluster for ends with it.
Threads: "plane" owns every socket but those of peers that have not proved the token yet, each of
which a thread owns; the main thread owns the engine; one loads decoders, which may take longer than
a receiver may be silent, and ends. Shared: `_inbox`, and what is printed.
"""

import functools
import json
import mmap
import os
import queue
import signal
import socket
import threading
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NoReturn

from stoker.clock import Deadline, now_s
from stoker.remote.engines.engine import Engine, Settings, make_engine
from stoker.remote.net import control
from stoker.remote.net.control import MESSAGE_NBYTES, Cause
from stoker.remote.net.link import BEAT_S, LOST_S, Link, Message, Word
from stoker.remote.net.printed import STDERR, STDOUT, Printer
from stoker.remote.net.relay import TrainerRelay
from stoker.remote.trainer.listener import Listener
from stoker.scheduler.tasks.slot import Slot
from stoker.wire.channel import Channel, ConnectionLost
from stoker.wire.lossless import warm
from stoker.wire.poll_loop import PollLoop
from stoker.wire.slabs import Arena

IDLE_S = 120.0  # without a batch, after which hosts that the loop asked for are given back
ANYWHERE = ("0.0.0.0", "::")  # every interface: hosts must be told one
MAX_FDS = 2
PRINT_S = 0.5  # for what is not yet written when the trainer has ended


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
    is_given_back: bool = False  # the engine ends it, for fewer are wanted


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


class Receiver:
    """The receiver process: its poll loop, and the hosts, jobs and workers that it serves."""

    def __init__(self, control: socket.socket, settings: Settings, printer: Printer) -> None:
        self._control = control
        self._printer = printer
        self._settings = settings
        self._listener = Listener(settings, self._post, self._welcome, self._say_note)
        self._inbox: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._wake_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._loop = PollLoop()
        self._hosts: dict[int, _Host] = {}
        self._jobs: dict[int, _Job] = {}
        self._workers: dict[int, _Worker] = {}
        self._arenas: dict[int, Arena] = {}
        self._next_lane = 0
        self._spoke_s = self._published_s = now_s()
        self._unsaid: deque[bytes] = deque()  # to the trainer
        self._engine: Engine | None = None  # once it is connected; of it only `want` is ours
        self._num_wanted: int | None = None  # hosts, by the trainer's own rate
        self._given_back: set[str] = set()  # names of hosts
        self._worked_s = now_s()
        self._is_idle = False
        self._is_full = False  # no connection can be taken in for the moment
        self._decodes = False  # the decoders are loaded

    def serve_and_exit(self) -> NoReturn:
        """Serve, then end the process: without this thread the engine's hosts are of no use."""
        try:
            self._serve()
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(70)

    def _serve(self) -> None:
        self._loop.add(self._control.fileno(), self._hear_trainer)
        self._loop.add(self._wake_fd, self._hear_threads)
        while True:
            self._send_rest()
            self._loop.wait(BEAT_S / 2)
            self._check_timeouts()

    @property
    def has_unsent(self) -> bool:
        """Whether messages to the trainer wait to be sent."""
        return bool(self._unsaid)

    def fileno(self) -> int:
        """Return the descriptor of the control socket."""
        return self._control.fileno()

    def _send_rest(self) -> None:
        """Send what waits to be sent, to the trainer and to hosts, as far as there is room."""
        if self._unsaid:
            self._say_rest()
        ends: list[Link | Channel] = [host.link for host in self._hosts.values()]
        ends += [worker.relay.channel for worker in self._workers.values()]
        for end in ends:
            if end.has_unsent:
                end.flush()
        self._loop.look_for_room([self, *ends])

    def _check_timeouts(self) -> None:
        now = now_s()
        for host in tuple(self._hosts.values()):
            if host.link.num_received_nbytes != host.num_heard_nbytes:
                host.num_heard_nbytes, host.heard_s = host.link.num_received_nbytes, now
            elif now - host.heard_s > LOST_S:
                self._lose(host, f"it was silent for {LOST_S} s")
        if now - self._spoke_s > BEAT_S:
            self._spoke_s = now
            self._printer.check_timeouts()
            for host in self._hosts.values():
                host.link.send(Word.BEAT)
            if not self._unsaid:  # else it hears enough when it listens again
                self._say(control.Beat())
            self._publish(now)
            if self._is_full:
                self._is_full = False
                self._loop.add(self._listener.fileno(), self._accept)
        if not self._is_idle and now - self._worked_s > IDLE_S:
            self._is_idle = True
            self._want()

    def _publish(self, now: float) -> None:
        """Publish, twice a second, what this run does: `stoker status` may ask for it."""
        if self._engine is None:
            return
        seconds = now - self._published_s
        self._published_s = now
        nodes: dict[str, dict[str, float]] = {}
        for host in self._hosts.values():
            node = nodes.setdefault(host.node, {"hosts": 0, "batches_per_s": 0, "nbytes_per_s": 0})
            nbytes = host.link.num_received_nbytes
            node["hosts"] += 1
            node["batches_per_s"] += (host.num_batches - host.num_told[0]) / seconds
            node["nbytes_per_s"] += (nbytes - host.num_told[1]) / seconds
            host.num_told = host.num_batches, nbytes
        self._engine.publish({**self._settings.get("about", {}), "nodes": nodes})

    def _has_work(self) -> None:
        self._worked_s = now_s()
        if self._is_idle:
            self._is_idle = False
            self._want()

    def _want(self) -> None:
        """Tell the engine how many hosts are wanted; while no batch comes, as few as may be."""
        if self._engine is not None and self._num_wanted is not None:
            self._engine.want(0 if self._is_idle else self._num_wanted)

    def _connected(self, engine: Engine) -> None:
        self._engine = engine
        self._want()

    # -- the engine's thread, and those of strangers ---------------------------------------------

    def _post(self, what: Callable[[], None]) -> None:
        """Have the thread that owns the sockets call this."""
        self._inbox.put(what)
        os.eventfd_write(self._wake_fd, 1)

    def _hear_threads(self) -> None:
        os.eventfd_read(self._wake_fd)
        self._do_posted()

    def _do_posted(self) -> None:
        while not self._inbox.empty():
            self._inbox.get()()

    def drive_engine(self) -> None:
        """Connect to the cluster, listen where it can reach us, and have it start hosts."""
        try:
            engine = make_engine(self._settings, self._note)
            bound = self._settings["bind"] or engine.address_of_trainer()
            dialled = engine.address_of_trainer() if bound in ANYWHERE else bound
            way = self._listener.open(bound, dialled)
            self._post(lambda: self._loop.add(self._listener.fileno(), self._accept))
            if not dialled.startswith("127."):  # see host.py, `run`
                threading.Thread(target=self._load_decoders, daemon=True).start()
            self._post(lambda: self._connected(engine))
            engine.run(
                way,
                self._note,
                lambda name: self._post(lambda: self._give_back(name)),
            )
        except Exception as error:
            text = f"{type(error).__name__}: {error}"
            self._post(lambda: self._say(control.NoEngine(text)))

    def _load_decoders(self) -> None:
        """Load decoders: takes seconds if they are compiled first, ten times that if busy."""
        try:
            warm()
        except Exception as error:  # whatever numba finds wrong here
            self._note(f"batches travel as they are: {type(error).__name__}: {error}")
        else:
            self._post(self._may_be_coded)

    def _note(self, text: str) -> None:
        """Show the user a message of the engine's."""
        self._post(lambda: self._say_note(text))

    def _accept(self) -> None:
        if not self._listener.accept():  # it would be tried again at once
            self._loop.remove(self._listener.fileno())
            self._is_full = True

    # -- hosts -----------------------------------------------------------------------------------

    def _welcome(self, sock: socket.socket, name: str, node: str) -> None:
        link = Link(sock)
        host = _Host(link, name, node, now_s(), is_given_back=name in self._given_back)
        link.room = lambda message: self._room(host, message)
        self._hosts[link.fileno()] = host
        self._loop.add(link.fileno(), lambda: self._hear_host(host))
        if self._decodes:
            link.send(Word.DECODES)
        for job in self._jobs.values():
            if job.manifest:
                link.send(Word.JOB, job.number, job.manifest)
        self._say(control.Joined(host.name, now_s()))
        self._hear_host(host)  # TLS may have read ahead

    def _may_be_coded(self) -> None:
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
                self._printer.print(message.lane, bytes(message.head))
            case Word.ENDED if worker is not None:
                self._end(worker, _ended(worker, message.head))

    def _lose(self, host: _Host, why: str) -> None:
        self._do_posted()  # the engine may have said just now that it is given back
        if self._hosts.pop(host.link.fileno(), None) is None:
            return
        self._loop.remove(host.link.fileno())
        for job in self._jobs.values():
            if host in job.ready:
                job.ready.discard(host)
                self._tell_capacity(job)
        cause, why_lost = Cause.LOST, f"{host.node} was lost: {why}"
        if host.is_given_back:
            cause, why_lost = Cause.GIVEN_BACK, "its machine was given back"
        for worker in tuple(host.workers.values()):
            who = worker.job, worker.slot, worker.generation, worker.pid
            self._end(worker, control.Ended(*who, None, cause, why_lost))
        host.link.close()
        why = f"{host.node}: {why}"
        self._say(control.Left(host.name, now_s(), why, is_lost=not host.is_given_back))

    def _give_back(self, name: str) -> None:
        self._given_back.add(name)  # it may be at the door; no other has its name
        for host in self._hosts.values():
            host.is_given_back = host.is_given_back or host.name == name

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

    # -- what the trainer says ---------------------------------------------------------------------

    def _say(self, message: control.Message) -> None:
        """Queue a message to the trainer, which may not read for as long as a validation takes."""
        self._unsaid.append(control.encode(message))
        self._say_rest()

    def _say_note(self, text: str) -> None:
        self._say(control.Note(text))

    def _say_rest(self) -> None:
        try:
            while self._unsaid:
                self._control.send(self._unsaid[0], socket.MSG_DONTWAIT)
                self._unsaid.popleft()
        except BlockingIOError:
            return
        except OSError:
            self._leave()  # Ray sees its driver gone, and ends what it runs

    def _hear_trainer(self) -> None:
        try:
            data, fds, _, _ = socket.recv_fds(
                self._control, MESSAGE_NBYTES, MAX_FDS, socket.MSG_CMSG_CLOEXEC
            )
        except OSError:  # reset: it had not read all when it ended
            data = b""
        if not data:
            self._leave()
        self._obey(control.decode(data), fds)

    def _obey(self, message: control.Message, fds: list[int]) -> None:
        match message:
            case control.Open(number):
                self._open(number, *fds)
            case control.Start():
                self._start(message, *fds)
            case control.Signal(number, slot, generation, signum):
                self._signal((number, slot, generation), signum)
            case control.Close(number):
                self._close(number)
            case control.Drop(arena):
                self._arenas.pop(arena, None)
            case control.Want(num_hosts):
                self._num_wanted = num_hosts
                self._want()

    def _leave(self) -> NoReturn:
        self._printer.wait_written(Deadline(PRINT_S))
        os._exit(0)

    def _open(self, number: int, fd: int) -> None:
        """Add a job that is being packed: its manifest and bytes come through this socket."""
        job = self._jobs[number] = _Job(number)
        sock = socket.socket(fileno=fd)
        threading.Thread(target=self._wait_packed, args=(job, sock), daemon=True).start()

    def _wait_packed(self, job: _Job, sock: socket.socket) -> None:
        with sock:
            _, fds, _, _ = socket.recv_fds(sock, 1, 1, socket.MSG_CMSG_CLOEXEC)
            said = b"".join(iter(functools.partial(sock.recv, 1 << 16), b""))
        value = json.loads(said or b'{"cannot": "the process that packed it died"}')
        if "cannot" in value:
            self._post(lambda: self._say(control.Cannot(job.number, "", value["cannot"])))
            return
        data = memoryview(mmap.mmap(fds[0], 0, prot=mmap.PROT_READ))
        os.close(fds[0])
        for (digest, nbytes), start in zip(value["parts"], value["starts"], strict=True):
            job.parts[digest] = data[start : start + nbytes]
        self._post(lambda: self._announce(job, said))

    def _announce(self, job: _Job, manifest: bytes) -> None:
        job.manifest = manifest
        if job.number in self._jobs:
            fingerprint = json.loads(manifest)["fingerprint"]
            self._say(control.Packed(job.number, fingerprint))
            for host in self._hosts.values():
                host.link.send(Word.JOB, job.number, manifest)

    def _tell_capacity(self, job: _Job) -> None:
        self._say(control.Capacity(job.number, len(job.ready)))

    def _start(self, start: control.Start, fd: int, arena_fd: int) -> None:
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
        """Return the host with the fewest workers of this job, then of all, or None."""
        return min(
            job.ready,
            key=lambda h: (
                sum(worker.job == job.number for worker in h.workers.values()),
                len(h.workers),
            ),
            default=None,
        )

    def _pump(self, worker: _Worker) -> None:
        try:
            worker.relay.pump()
        except ConnectionLost:  # the trainer hung up: it wants nothing more of this worker
            worker.host.link.send(Word.HANG_UP, worker.relay.lane)
            self._hang_up(worker)

    def _signal(self, who: tuple[int, Slot, int], signum: int) -> None:
        """Send a signal to a worker. who: its job, slot and generation."""
        for worker in [worker for host in self._hosts.values() for worker in host.workers.values()]:
            if (worker.job, worker.slot, worker.generation) == who:
                worker.host.link.send(Word.SIGNAL, worker.relay.lane, str(signum).encode())

    def _close(self, number: int) -> None:
        self._jobs.pop(number, None)
        for host in self._hosts.values():
            for worker in [worker for worker in host.workers.values() if worker.job == number]:
                self._drop(worker)
            host.link.send(Word.FORGET, number)


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


def _is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


def run() -> None:
    control = socket.socket(fileno=os.dup(0))
    null = os.open(os.devnull, os.O_RDWR)
    printer = Printer({number: os.dup(number) for number in (STDOUT, STDERR) if _is_open(number)})
    os.dup2(null, 0)
    os.dup2(null, 1)
    data = control.recv(MESSAGE_NBYTES)
    if not data:
        return  # the trainer has ended meanwhile
    signal.signal(signal.SIGTTOU, signal.SIG_IGN)  # we print from behind, to whatever terminal
    receiver = Receiver(control, json.loads(data), printer)
    threading.Thread(target=receiver.serve_and_exit, name="plane").start()
    receiver.drive_engine()  # on the main thread: Ray sets signal handlers


if __name__ == "__main__":
    run()
