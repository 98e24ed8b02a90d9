"""Starts the receiver from the training process and, through it, workers on other machines.

Promise: no call waits for another machine. If the receiver dies, the capacity is 0: the loops go
on with this machine's own workers.
Owner: any thread that iterates; `_lock` guards what they share.
"""

import atexit
import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from stoker.clock import Deadline, now_s
from stoker.local.cluster import Cluster
from stoker.local.sizing import usable_cores
from stoker.orphans import Orphan
from stoker.remote.net import control
from stoker.remote.net.control import MESSAGE_NBYTES, Cause
from stoker.scheduler.tasks.slot import Exit, Slot
from stoker.wire.slabs import Arena, Lender

RECEIVER_LOST = "stoker's receiver died"
SILENT_S = 5.0  # it says something twice a second
MAX_POOLED = 64  # arenas that wait for a worker
GONE_S = 5.0  # what the receiver may take to end, at exit


@dataclass(slots=True)
class _Latest:
    """The latest worker of a slot. exit: how it ended, once it has; begun: the task that it was
    making, see `Lost`; arena: what it writes to, until its socket is closed here."""

    number: int
    pid: int | None = None
    node: str = ""
    host: str = ""
    exit: Exit | None = None
    cause: Cause = Cause.OWN_END
    begun: int | None = None
    arena: tuple[int, Lender] | None = None


class Away(Cluster):
    """A loader's workers on other machines. See `Cluster` for the calls.

    arena_nbytes: size of the memory on this machine that each worker's batches are put into.
    """

    why_no_replacement = ""

    def __init__(self, fleet: "Fleet", number: int, arena_nbytes: int) -> None:
        self._fleet = fleet
        self._number = number
        self._arena_nbytes = arena_nbytes
        self._latest: dict[Slot, _Latest] = {}
        self.capacity = 0  # hosts that have unpacked the job
        self.fingerprint = b""  # of the job at iter(), once it is packed
        self.cannot: list[str] = []  # why the job is not served, at all or by some hosts

    def start(self, slot: Slot, after_s: float = 0.0) -> socket.socket:
        """Start the worker at once. Its socket ends if there is no capacity, or no memory here."""
        ours, theirs = socket.socketpair()
        before = self._latest.get(slot)
        latest = self._latest[slot] = _Latest(before.number + 1 if before else 0)
        with theirs:
            try:
                number, lender = latest.arena = self._fleet.take_arena(self._arena_nbytes)
            except OSError:
                self._end(latest, Exit(slot, -1, -signal.SIGKILL), Cause.LOST)
                return ours
            if self._fleet.is_gone:
                self._end(latest, Exit(slot, -1, -signal.SIGKILL), Cause.LOST)
            start = control.Start(self._number, slot, latest.number, number, lender.arena.nbytes)
            self._fleet.say(start, [theirs.fileno(), lender.arena.fd])
        return ours

    def start_rest(self) -> None:
        return  # none is put off

    def drop_rest(self) -> None:
        return

    def signal(self, slot: Slot, signum: int) -> None:
        if slot in self._latest:
            latest = self._latest[slot].number
            self._fleet.say(control.Signal(self._number, slot, latest, int(signum)))

    def wait_pid(self, slot: Slot, deadline: Deadline) -> int | None:
        latest = self._latest.get(slot)
        if latest is None:
            return None
        self._fleet.wait(lambda: latest.pid is not None or latest.exit is not None, deadline)
        return latest.pid

    def wait_exit(self, slot: Slot, deadline: Deadline) -> Exit | None:
        latest = self._latest.get(slot)
        if latest is None:
            return None
        self._fleet.wait(lambda: latest.exit is not None, deadline)
        return latest.exit

    def news_fds(self) -> set[int]:
        return set() if self._fleet.is_gone else {self._fleet.fileno()}

    def hear(self) -> None:
        self._fleet.hear()

    @property
    def is_gone(self) -> bool:
        return self._fleet.is_gone

    def take_ended(self) -> set[Slot]:
        return set()  # here a worker's socket has no copy: its end tells

    def close(self, grace_s: float) -> None:
        """End the job without waiting; workers that still run are taken for ended, with code 0."""
        self._fleet.close_job(self._number)
        for slot, latest in self._latest.items():
            if latest.exit is None:
                self._end(latest, Exit(slot, latest.pid or -1, 0))

    # -- what a Cluster need not tell --------------------------------------------------------------

    def lender_of(self, slot: Slot) -> Lender | None:
        """Return the lender of the memory that the slot's worker writes to; None if it has none."""
        latest = self._latest.get(slot)
        return latest.arena[1] if latest is not None and latest.arena is not None else None

    @property
    def lenders(self) -> list[Lender]:
        """Lenders of the memory that living workers write to."""
        return [latest.arena[1] for latest in self._latest.values() if latest.arena is not None]

    def hung_up(self, slot: Slot) -> None:
        """Give back the arena of a worker whose socket is closed: another may write to it."""
        latest = self._latest[slot]
        if latest.arena is not None:
            self._fleet.give_arena(*latest.arena)
            latest.arena = None

    def cause_of_end(self, slot: Slot) -> Cause:
        return self._latest[slot].cause

    def begun(self, slot: Slot) -> int | None:
        """Return the task that a worker that has ended was making; see `Lost`."""
        return self._latest[slot].begun

    def crowd(self, slots: Iterable[Slot]) -> tuple[Slot, ...]:
        """Return those of the slots' workers that have to move for every host to have as many."""
        on_hosts: dict[str, list[Slot]] = {}
        for slot in sorted(slots):
            latest = self._latest[slot]
            if latest.host and latest.exit is None:
                on_hosts.setdefault(latest.host, []).append(slot)
        num_each = -(-sum(map(len, on_hosts.values())) // max(self.capacity, 1))
        return tuple(slot for found in on_hosts.values() for slot in found[num_each:])

    def node_of(self, slot: Slot) -> str:
        return self._latest[slot].node if slot in self._latest else ""

    # -- news --------------------------------------------------------------------------------

    def take_in(
        self, news: control.Packed | control.Capacity | control.Started | control.Ended
    ) -> None:
        match news:
            case control.Packed(_, fingerprint):
                self.fingerprint = bytes.fromhex(fingerprint)
            case control.Capacity(_, capacity):
                self.capacity = capacity
            case control.Started(_, slot, number, pid, node, host):
                latest = self._latest.get(slot)
                if latest is not None and latest.number == number:
                    latest.pid, latest.node, latest.host = pid, node, host
            case control.Ended(_, slot, number, pid, code, cause, _, begun):
                latest = self._latest.get(slot)
                if latest is not None and latest.number == number:
                    how = Exit(slot, pid, -signal.SIGKILL if code is None else code)
                    self._end(latest, how, cause, begun)

    def receiver_lost(self) -> None:
        self.capacity = 0
        for slot, latest in self._latest.items():
            if latest.exit is None:
                self._end(latest, Exit(slot, latest.pid or -1, -signal.SIGKILL), Cause.LOST)

    @staticmethod
    def _end(
        latest: _Latest, how: Exit, cause: Cause = Cause.OWN_END, begun: int | None = None
    ) -> None:
        latest.exit, latest.cause, latest.begun = how, cause, begun


class Fleet:
    """The trainer's handle on its receiver process. say: is given what the user should know."""

    def __init__(self, settings: dict[str, Any], say: Callable[[str], None]) -> None:
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
        self._joined_s: dict[str, float] = {}  # by name of a host that lives
        self._served_s = 0.0  # by those that are gone
        self._pool: list[tuple[int, Lender]] = []  # arenas that the receiver has mapped
        self._next_arena = 0
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
        return len(self._joined_s)

    def served_s(self) -> float:
        """Return for how long this process has had CPUs of other machines, summed over all."""
        with self._lock:
            now = now_s()
            return self._served_s + sum(now - joined for joined in self._joined_s.values())

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
            room = select.poll()
            room.register(self._control, select.POLLOUT)
            try:
                if room.poll(SILENT_S * 1000):
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
        poll = select.poll()
        poll.register(self._control, select.POLLIN)
        poll.register(self._wake_fd, select.POLLIN)
        self._has_listener = True
        self._lock.release()
        try:
            poll.poll(deadline.left_ms())
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
            case control.Joined(host, at_s):
                self.num_joined += 1
                self._joined_s[host] = at_s
            case control.Left(host, at_s, why, is_lost):
                self._served_s += at_s - self._joined_s.pop(host, at_s)
                if is_lost:
                    self.num_lost += 1
                    self._say_to_user(f"{host} is lost: {why}; the others go on")
            case control.Cannot(number, node, why):
                if number in self._jobs:
                    self._jobs[number].cannot.append(why)
                where = f" on {node}" if node else " on other machines"
                self._say_to_user(f"this loader cannot run{where}: {why}")
            case control.NoEngine(why):
                self._say_to_user(f"remote workers are not available: {why}")
            case control.Note(text):
                self._say_to_user(text)

    def _lose(self, why: str) -> None:
        """Give the receiver up, but keep its socket open: its number may still be polled."""
        self._served_s = self.served_s()
        self._joined_s.clear()
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
            self._joined_s.clear()
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


def _without_stoker(environ: Any) -> dict[str, str]:
    """Return the environment without STOKER_*: the receiver does not run the user's script."""
    return {name: value for name, value in environ.items() if not name.startswith("STOKER_")}
