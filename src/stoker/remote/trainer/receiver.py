"""Runs beside the trainer as the process that hosts dial: it receives batches and drives Ray.

    python -m stoker.remote.trainer.receiver      its control socket is file descriptor 0

Promise: the training process pays neither for sockets between machines nor for Ray's threads. It
ends when the trainer does, in any way, and everything that it asked the cluster for ends with it.
Threads: "plane" owns every socket but those of peers that have not proved the token yet, each of
which a thread owns; the main thread owns the engine; one loads decoders, which may take longer than
a receiver may be silent, and ends. Shared: `_inbox`, and what is printed.
"""

import contextlib
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
from collections.abc import Callable
from typing import Any, NoReturn

from stoker import descriptors
from stoker.clock import Deadline, now_s
from stoker.poll_loop import PollLoop
from stoker.remote.engines.engine import Engine, Settings, Way, make_engine
from stoker.remote.net import control
from stoker.remote.net.control import MESSAGE_NBYTES
from stoker.remote.net.link import BEAT_S
from stoker.remote.net.printed import STDERR, STDOUT, Printer
from stoker.remote.trainer.files import FileServer
from stoker.remote.trainer.hosts import Hosts
from stoker.remote.trainer.listener import Listener
from stoker.storage.asking.control import ask
from stoker.wire.lossless import warm

IDLE_S = 120.0  # without a batch, after which hosts that the loop asked for are given back
ANYWHERE = ("0.0.0.0", "::")  # every interface: hosts must be told one
MAX_FDS = 2
STORAGE_ANSWERS_S = 0.02  # it takes a millisecond, and batches wait meanwhile
PRINT_S = 0.5  # for what is not yet written when the trainer has ended


class Receiver:
    """The receiver process: its poll loop, and the hosts, jobs and workers that it serves."""

    def __init__(self, control: socket.socket, settings: Settings, printer: Printer) -> None:
        self._control = control
        self._printer = printer
        self._settings = settings
        self._inbox: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._wake_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._loop = PollLoop()
        self._hosts = Hosts(self._loop, self._say, printer.print, self._has_work, self._do_posted)
        away = settings.get("mounts_away")
        self._files = FileServer([root[0] for root in away["hosted"]]) if away else None
        self._listener = Listener(
            settings, self._post, self._hosts.welcome, self._say_note, self._files
        )
        self._spoke_s = self._published_s = now_s()
        self._unsaid: deque[bytes] = deque()  # to the trainer
        self._sent_nbytes = 0  # of files, as the trainer was told
        self._read_away: dict[str, float] = {}
        self._engine: Engine | None = None  # once it is connected; of it only `want` is ours
        self._num_wanted: int | None = None  # workers, by the trainer's own rate
        self._worked_s = now_s()
        self._is_idle = False
        self._is_full = False  # no connection can be taken in for the moment

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
        ends = self._hosts.ends
        for end in ends:
            if end.has_unsent:
                end.flush()
        self._loop.look_for_room([self, *ends])

    def _check_timeouts(self) -> None:
        now = now_s()
        self._hosts.check_timeouts(now)
        if now - self._spoke_s > BEAT_S:
            self._spoke_s = now
            self._printer.check_timeouts()
            self._hosts.beat()
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
        nodes = self._hosts.rates(seconds)
        if self._files is not None and self._files.num_nbytes != self._sent_nbytes:
            self._sent_nbytes = self._files.num_nbytes
            self._say(control.FilesSent(self._sent_nbytes))
        read = self._listener.peers.totals()
        if read != self._read_away:
            self._read_away = read
            self._say(control.StorageAway(json.dumps(read)))
        about = {**self._settings.get("about", {}), "nodes": nodes}
        self._engine.publish({**about, "storage": self._storage(), "storage_away": read or None})

    def _storage(self) -> dict[str, Any] | None:
        """Return what this machine's storage process has read for the run's mounts."""
        away = self._settings.get("mounts_away")
        if away is None or not away["socket"]:
            return None
        try:
            return ask(str(away["socket"]), {"stats": True}, within_s=STORAGE_ANSWERS_S)
        except OSError:
            return None

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
            if "mounts_away" in self._settings:
                way["mounts_away"] = {**self._settings["mounts_away"], "way": dict(way)}
            self._post(lambda: self._loop.add(self._listener.fileno(), self._accept))
            self._tell_storage(way)
            if not dialled.startswith("127."):  # see host.py, `run`
                threading.Thread(target=self._load_decoders, daemon=True).start()
            self._post(lambda: self._connected(engine))
            engine.run(
                way,
                self._note,
                lambda *told: self._post(lambda: self._hosts.resize(*told)),
            )
        except Exception as error:
            text = f"{type(error).__name__}: {error}"
            self._post(lambda: self._say(control.NoEngine(text)))

    def _tell_storage(self, way: Way) -> None:
        """Have this machine's storage process meet those of other machines."""
        away = self._settings.get("mounts_away")
        if away is not None and away["socket"]:
            to_trainer = {name: way[name] for name in ("address", "port", "token", "certificate")}
            with contextlib.suppress(OSError):  # it has ended, and says so
                ask(str(away["socket"]), {"join": to_trainer})

    def _load_decoders(self) -> None:
        """Load decoders: takes seconds if they are compiled first, ten times that if busy."""
        try:
            warm()
        except Exception as error:  # whatever numba finds wrong here
            self._note(f"batches travel as they are: {type(error).__name__}: {error}")
        else:
            self._post(self._hosts.may_be_coded)

    def _note(self, text: str) -> None:
        """Show the user a message of the engine's."""
        self._post(lambda: self._say_note(text))

    def _accept(self) -> None:
        if not self._listener.accept():  # it would be tried again at once
            self._loop.remove(self._listener.fileno())
            self._is_full = True

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
            data, fds = descriptors.receive(
                self._control, MESSAGE_NBYTES, MAX_FDS, socket.MSG_DONTWAIT
            )
        except BlockingIOError:  # there was room to write, and nothing to read
            return
        except OSError:  # reset: it had not read all when it ended
            data = b""
        if not data:
            self._leave()
        self._obey(control.decode(data), fds)

    def _obey(self, message: control.Message, fds: list[int]) -> None:
        match message:
            case control.Open(number):
                self._has_work()
                self._open(number, *fds)
            case control.Start():
                self._hosts.start(message, *fds)
            case control.Signal(number, slot, generation, signum):
                self._hosts.signal((number, slot, generation), signum)
            case control.Close(number):
                self._hosts.close(number)
            case control.Drop(arena):
                self._hosts.drop_arena(arena)
            case control.Remembered():
                self._hosts.tell_differed(message)
            case control.Want(num_cpus):
                self._num_wanted = num_cpus
                self._has_work()  # said again after a pause, in which hosts may have been given back
                self._want()

    def _leave(self) -> NoReturn:
        self._printer.wait_written(Deadline(PRINT_S))
        os._exit(0)

    def _open(self, number: int, fd: int) -> None:
        """Add a job that is being packed: its manifest and bytes come through this socket."""
        self._hosts.open(number)
        sock = socket.socket(fileno=fd)
        threading.Thread(target=self._wait_packed, args=(number, sock), daemon=True).start()

    def _wait_packed(self, number: int, sock: socket.socket) -> None:
        with sock:
            _, fds = descriptors.receive(sock, 1, 1)
            said = b"".join(iter(functools.partial(sock.recv, 1 << 16), b""))
        value = json.loads(said or b'{"cannot": "the process that packed it died"}')
        if "cannot" in value:
            self._post(lambda: self._say(control.Cannot(number, "", value["cannot"])))
            return
        data = memoryview(mmap.mmap(fds[0], 0, prot=mmap.PROT_READ))
        os.close(fds[0])
        placed = zip(value["parts"], value["starts"], strict=True)
        parts = {digest: data[start : start + nbytes] for (digest, nbytes), start in placed}
        self._post(lambda: self._hosts.announce(number, said, parts))


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
