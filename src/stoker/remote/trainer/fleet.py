"""Starts the receiver from the training process and, through it, workers on other machines.

Promise: no call waits for another machine. If the receiver dies, the capacity is 0: the loops go
on with this machine's own workers.
Owner: any thread that iterates; `_lock` guards what they share.
"""

import atexit
import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from typing import NamedTuple

from stoker.clock import Deadline, now_s
from stoker.local.sizing import usable_cores
from stoker.orphans import Orphan
from stoker.poll_loop import wait_ready
from stoker.remote.engines.engine import Settings
from stoker.remote.net import control
from stoker.remote.net.control import MESSAGE_NBYTES
from stoker.remote.trainer.away import Away
from stoker.wire.arena import Arena, Lender

RECEIVER_LOST = "stoker's receiver died"
SILENT_S = 5.0  # it says something twice a second
MAX_POOLED = 64  # arenas that wait for a worker
GONE_S = 5.0  # what the receiver may take to end, at exit


class Told(NamedTuple):
    """What one machine has told of a place. why: it is left alone; counts: the numbers of its
    phases.Counts; is_there: the machine has not left."""

    key: bytes
    name: str
    why: str
    counts: tuple[int, ...]
    is_there: bool


class Fleet:
    """The trainer's handle on its receiver process. say: is given what the user should know."""

    def __init__(self, settings: Settings, say: Callable[[str], None]) -> None:
        """Start the receiver. settings: see remote/trainer/receiver.py. Raises OSError."""
        self._say_to_user = say
        self._owner_pid = os.getpid()
        self._lock = threading.RLock()  # guards everything below
        self._heard = threading.Condition(self._lock)
        self._has_listener = False
        self._wake_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self.num_cores: int = settings.get("num_cores") or usable_cores()  # this rank's share
        self._jobs: dict[int, Away] = {}
        self._next_job = 0
        # MIN and MAX of hosts; None: how many is not the loop's to say.
        least, colon, most = (settings["workers"] or "").partition(":")
        self.bounds = (int(least), int(most)) if colon else None
        self.num_joined = self.num_lost = 0  # hosts
        # By name of a host that lives: since when it has so many CPUs.
        self._since: dict[str, tuple[float, int]] = {}
        self._served_s = 0.0  # before that
        self._remembered: dict[tuple[str, bytes], Told] = {}  # by host and key
        self._differed: set[bytes] = set()  # keys of places, here
        self._pool: list[tuple[int, Lender]] = []  # arenas that the receiver has mapped
        self._next_arena = 0
        self.files_sent_nbytes = 0  # to machines that lack them
        self.storage_away: dict[
            str, float
        ] = {}  # what other machines have read (storage/reading/stats.py)
        self.is_gone = False
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._process = Orphan(
            # -P: what lies in the script's folder is not ours.
            [sys.executable, "-P", "-m", "stoker.remote.trainer.receiver"],
            stdin=theirs.fileno(),
            # Where datasets print on other machines. Without a stdout, 1 may be any file's number.
            stdout=subprocess.DEVNULL if sys.__stdout__ is None else None,
            env=_without_stoker(os.environ),
            # A Ctrl-C is the script's, and so is what comes of it. Not a session: Linux 6.18 may let
            # one of its own wait for seconds at a time beside a busy one (sched_autogroup).
            process_group=0,
        )
        theirs.close()
        self._control.send(json.dumps(settings).encode())
        os.register_at_fork(after_in_child=self._abandon)
        atexit.register(self.close)

    def fileno(self) -> int:
        return self._control.fileno()

    def open(self, packer: socket.socket, arena_nbytes: int) -> Away:
        """Add a loader, whose job is being packed by the process behind `packer`."""
        with self._lock:
            number = self._next_job
            away = self._jobs[number] = Away(self, number, arena_nbytes)
            self._next_job += 1
        self.say(control.Open(number), [packer.fileno()])
        packer.close()
        return away

    @property
    def num_hosts(self) -> int:
        """Hosts that live, as far as the receiver has told."""
        return len(self._since)

    @property
    def num_cpus(self) -> int:
        """Workers that the living hosts may have: CPUs of other machines."""
        return sum(num_cpus for _, num_cpus in self._since.values())

    def files_sent(self) -> int:
        """Return how many bytes of this machine's files were sent to machines that lack them."""
        self.hear()
        return self.files_sent_nbytes

    def storage_read(self) -> dict[str, float]:
        """Return what other machines have read of files, added up (storage/reading/stats.py)."""
        self.hear()
        return self.storage_away

    def served_s(self) -> float:
        """Return for how long this process has had CPUs of other machines, summed over all."""
        with self._lock:
            now = now_s()
            served_s = sum((now - since_s) * num for since_s, num in self._since.values())
            return self._served_s + served_s

    def remembered(self) -> list[Told]:
        """Return what each other machine has told last of each place."""
        self.hear()
        with self._lock:
            return list(self._remembered.values())

    def tell_differed(self, key: bytes, name: str, why: str) -> None:
        """Have a place left alone on all machines: a sample has differed here."""
        with self._lock:
            if key not in self._differed:
                self._differed.add(key)
                self.say(control.Remembered("", key.hex(), name, why, True, []))

    def close_job(self, number: int) -> None:
        if os.getpid() == self._owner_pid and self._jobs.pop(number, None) is not None:
            self.say(control.Close(number))

    def take_arena(self, nbytes: int) -> tuple[int, Lender]:
        """Return number and lender of an arena with nothing lent. Raises OSError if refused."""
        with self._lock:
            for i, (number, lender) in enumerate(self._pool):
                lender.take_returned()
                if not lender.lent():
                    del self._pool[i]
                    return number, lender
            self._next_arena += 1
            return self._next_arena, Lender(Arena(nbytes, can_travel=True))

    def give_arena(self, number: int, lender: Lender) -> None:
        with self._lock:
            self._pool.append((number, lender))
            for i, (spare, each) in enumerate(self._pool[:-MAX_POOLED]):
                each.take_returned()
                if not each.lent():
                    del self._pool[i]
                    self.say(control.Drop(spare))
                    return

    @property
    def pool(self) -> list[Lender]:
        """Lenders of arenas that no worker has; the script may still hold batches in them."""
        with self._lock:
            return [lender for _, lender in self._pool]

    # -- the control socket --------------------------------------------------------------------

    def say(self, message: control.Message, fds: tuple[int, ...] | list[int] = ()) -> None:
        with self._lock:
            if self.is_gone:
                return
            data = [control.encode(message)]
            try:
                if wait_ready(self._control, by=Deadline(SILENT_S), is_to_write=True):
                    socket.send_fds(self._control, data, fds)
                else:
                    self.end_silent()
            except OSError:
                self._lose(RECEIVER_LOST)

    def end_silent(self) -> None:
        """Kill the receiver, which has said nothing for SILENT_S though it was listened to."""
        with self._lock:
            if not self.is_gone:
                self._process.kill()  # stopped or hung; its sockets end with it
                self._lose(f"stoker's receiver was silent for {SILENT_S:.0f} s")

    def hear(self) -> None:
        """Take in all messages of the receiver that have come. Never waits."""
        with self._lock:
            while not self.is_gone:
                try:
                    data = self._control.recv(MESSAGE_NBYTES, socket.MSG_DONTWAIT)
                except BlockingIOError:
                    return
                except OSError:
                    data = b""
                if not data:
                    self._lose(RECEIVER_LOST)
                else:
                    self._take_in(control.decode(data))
                self._heard.notify_all()
                if self._has_listener:  # it waits for what was just taken
                    os.eventfd_write(self._wake_fd, 1)

    def wait(self, is_met: Callable[[], bool], deadline: Deadline) -> None:
        """Wait until the condition holds, the receiver is gone, or time is over.

        Of several threads one listens, and wakes the others.
        """
        with self._lock:
            self.hear()
            while not (is_met() or self.is_gone or deadline.is_over()):
                if self._has_listener:
                    self._heard.wait(deadline.left_s())
                else:
                    self._listen(deadline)

    def _listen(self, deadline: Deadline) -> None:
        self._has_listener = True
        self._lock.release()
        try:
            wait_ready(self._control, self._wake_fd, by=deadline)
        finally:
            self._lock.acquire()
            self._has_listener = False
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._wake_fd)
        self.hear()
        self._heard.notify_all()  # one of those who waited listens now

    def _take_in(self, message: control.Message) -> None:
        match message:
            case control.Packed() | control.Capacity() | control.Started() | control.Ended():
                away = self._jobs.get(message.job)
                if away is not None:
                    away.take_in(message)
            case control.Joined(host, at_s, num_cpus, is_new):
                self.num_joined += is_new
                self._settle(host, at_s)
                self._since[host] = at_s, num_cpus
            case control.Left(host, at_s, why, is_lost):
                self._settle(host, at_s)
                for (teller, key), told in self._remembered.items():
                    if teller == host:
                        self._remembered[teller, key] = told._replace(is_there=False)
                if is_lost:
                    self.num_lost += 1
                    self._say_to_user(f"{host} is lost: {why}; the others go on")
            case control.Cannot(number, node, why):
                if number in self._jobs:
                    self._jobs[number].cannot.append(why)
                where = f" on {node}" if node else " on other machines"
                self._say_to_user(f"this loader cannot run{where}: {why}")
            case control.Remembered(host, key, name, why, _, counts):
                told = Told(bytes.fromhex(key), name, why, tuple(counts), is_there=True)
                self._remembered[host, told.key] = told
            case control.FilesSent(nbytes):
                self.files_sent_nbytes = nbytes
            case control.StorageAway(read):
                self.storage_away = json.loads(read)
            case control.NoEngine(why):
                self._say_to_user(f"remote workers are not available: {why}")
            case control.Note(text):
                self._say_to_user(text)

    def _settle(self, host: str, at_s: float) -> None:
        """Count what a host has served until now."""
        since_s, num_cpus = self._since.pop(host, (at_s, 0))
        self._served_s += (at_s - since_s) * num_cpus

    def _lose(self, why: str) -> None:
        """Give the receiver up, but keep its socket open: its number may still be polled."""
        self._served_s = self.served_s()
        self._since.clear()
        self.is_gone = True
        self._say_to_user(f"remote workers lost: {why}; continuing on this machine")
        for away in self._jobs.values():
            away.receiver_lost()

    def close(self) -> None:
        """End the receiver, and with it what it asked the cluster for. Idempotent."""
        if os.getpid() != self._owner_pid:
            return
        atexit.unregister(self.close)
        with self._lock:
            self._served_s = self.served_s()
            self._since.clear()
            self.is_gone = True
            self._control.close()
            os.close(self._wake_fd)
        if not self._process.has_ended(GONE_S):
            self._process.kill()
            self._process.has_ended(GONE_S)
        self._process.let_go()

    def _abandon(self) -> None:
        """Close the sockets in a forked child, so that the receiver sees the trainer's own end."""
        if not self.is_gone:
            os.close(self._wake_fd)
        self.is_gone = True
        self._control.close()
        self._lock = threading.RLock()
        self._heard = threading.Condition(self._lock)
        self._process.let_go()


def _without_stoker(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without STOKER_*: the receiver does not run the user's script."""
    return {name: value for name, value in environ.items() if not name.startswith("STOKER_")}
