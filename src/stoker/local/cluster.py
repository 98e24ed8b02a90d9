"""What the stream asks of whoever runs its workers.

One contract suite (tests/contract/) runs on every implementation.
"""

import socket
from typing import Protocol

from stoker.clock import Deadline
from stoker.scheduler.tasks.slot import Exit, Slot


class Cluster(Protocol):
    """Starts worker processes, one a slot, and tells how they ended.

    Owner: one thread. All calls but `wait_*` and `close` return at once.
    """

    why_no_replacement: str
    """Why a worker that died stays dead; empty: another can be started in its slot."""

    def start(self, slot: Slot, after_s: float = 0.0) -> socket.socket:
        """Start a worker there; returns the trainer's end of its socket. The old one must be gone.

        after_s: not before, where starting one is quick; a signal to it makes it start at once.
        """

    def start_rest(self) -> None:
        """Start every worker that was asked for: until now a cluster may put off the first ones
        beyond its cores."""

    def drop_rest(self) -> None:
        """The workers that were put off are not needed: their sockets end."""

    def signal(self, slot: Slot, signum: int) -> None:
        """Send a signal to the slot's worker; nothing if it ended."""

    def wait_pid(self, slot: Slot, deadline: Deadline) -> int | None:
        """Pid of the slot's latest worker; None when it has not started in time."""

    def wait_exit(self, slot: Slot, deadline: Deadline) -> Exit | None:
        """How the slot's latest worker ended; None when it has not in time."""

    def news_fds(self) -> set[int]:
        """Descriptors, readable when a worker may have ended; none once there can be no news."""

    def hear(self) -> None:
        """Take in what is readable. Never waits."""

    def take_ended(self) -> set[Slot]:
        """Slots whose latest worker is known to have ended, each told once: what it started may
        hold a copy of its socket, which then does not end."""

    @property
    def is_gone(self) -> bool:
        """Whether no worker can be started any more."""

    def close(self, grace_s: float) -> None:
        """End every worker: after grace_s they are terminated, then killed. Idempotent."""
