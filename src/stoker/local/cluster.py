"""Defines the protocol `Cluster`, which starts, signals and ends worker processes.

One contract suite (tests/contract/) runs on every implementation.
"""

import socket
from typing import Protocol

from stoker.clock import Deadline
from stoker.scheduler.tasks.slot import Exit, Slot


class Cluster(Protocol):
    """Starts worker processes, one per slot, and tells how they ended.

    Owner: one thread. All calls but `wait_*` and `close` return at once.
    """

    def start(self, slot: Slot, after_s: float = 0.0) -> socket.socket:
        """Start the slot's worker, whose last must be gone; returns the trainer's end of a socket.

        after_s: wait so long first, if starting one is quick; a signal to it starts it at once.
        """

    def start_rest(self) -> None:
        """Start every worker that was asked for: until now a cluster may put off the first ones
        beyond its cores."""

    def drop_rest(self) -> None:
        """Give up the workers that were put off: their sockets end."""

    def signal(self, slot: Slot, signum: int) -> None:
        """Send a signal to the slot's worker; do nothing if it has ended."""

    def wait_pid(self, slot: Slot, deadline: Deadline) -> int | None:
        """Return the pid of the slot's latest worker; None if it has not started in time."""

    def wait_exit(self, slot: Slot, deadline: Deadline) -> Exit | None:
        """Return how the slot's latest worker ended; None if it has not ended in time."""

    def news_fds(self) -> set[int]:
        """Return descriptors, readable when a worker may have ended; empty once none can."""

    def hear(self) -> None:
        """Read what has come on those descriptors. Never waits."""

    def take_ended(self) -> set[Slot]:
        """Return slots whose latest worker is known to have ended, each once: what it started may
        hold a copy of its socket, which then does not end."""

    @property
    def is_gone(self) -> bool:
        """Whether no worker can be started any more."""

    def close(self, grace_s: float) -> None:
        """End every worker: after grace_s seconds they are terminated, then killed. Idempotent."""
