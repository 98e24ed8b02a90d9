"""Starts, signals and reaps one loader's workers on other machines, through the fleet: a `Cluster`.

Owner: the thread that iterates; what it shares with others the fleet's lock guards.
"""

import signal
import socket
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stoker.clock import Deadline
from stoker.local.cluster import Cluster
from stoker.remote.net import control
from stoker.remote.net.control import Cause
from stoker.scheduler.tasks.slot import Exit, Slot
from stoker.wire.arena import Lender

if TYPE_CHECKING:
    from stoker.remote.trainer.fleet import Fleet


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

    def __init__(self, fleet: "Fleet", number: int, arena_nbytes: int) -> None:
        self._fleet = fleet
        self._number = number
        self._arena_nbytes = arena_nbytes
        self._latest: dict[Slot, _Latest] = {}
        self._cpus: dict[str, int] = {}  # by name of a host that has unpacked the job
        self.fingerprint = b""  # of the job at iter(), once it is packed
        self._has_left = False
        self.cannot: list[str] = []  # why the job is not served, at all or by some hosts

    @property
    def capacity(self) -> int:
        """Workers that hosts which have unpacked the job may have."""
        return 0 if self._has_left else sum(self._cpus.values())

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

    def leave(self) -> None:
        """Lose all workers there, as if their machines were lost, and start no more."""
        self._has_left = True
        self._fleet.close_job(self._number)
        self.receiver_lost()

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
        """Return those of the slots' workers that have to move for every host to have its share."""
        on_hosts: dict[str, list[Slot]] = {}
        for slot in sorted(slots):
            latest = self._latest[slot]
            if latest.host and latest.exit is None:
                on_hosts.setdefault(latest.host, []).append(slot)
        num_there, capacity = sum(map(len, on_hosts.values())), max(self.capacity, 1)
        crowd: list[Slot] = []
        for host, found in on_hosts.items():
            num_cpus = self._cpus.get(host, capacity)  # of one that is lost, all end by that
            crowd += found[-(-num_there * num_cpus // capacity) :]
        return tuple(crowd)

    def node_of(self, slot: Slot) -> str:
        return self._latest[slot].node if slot in self._latest else ""

    # -- news --------------------------------------------------------------------------------

    def take_in(
        self, news: control.Packed | control.Capacity | control.Started | control.Ended
    ) -> None:
        match news:
            case control.Packed(_, fingerprint):
                self.fingerprint = bytes.fromhex(fingerprint)
            case control.Capacity(_, cpus):
                self._cpus = cpus
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
        self._cpus = {}
        for slot, latest in self._latest.items():
            if latest.exit is None:
                self._end(latest, Exit(slot, latest.pid or -1, -signal.SIGKILL), Cause.LOST)

    @staticmethod
    def _end(
        latest: _Latest, how: Exit, cause: Cause = Cause.OWN_END, begun: int | None = None
    ) -> None:
        latest.exit, latest.cause, latest.begun = how, cause, begun
