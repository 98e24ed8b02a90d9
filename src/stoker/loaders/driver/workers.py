"""Joins two clusters, of this machine and of other machines, into one for a loader's workers.

Owner: the thread that iterates.
"""

import signal
import socket
from typing import TYPE_CHECKING

from stoker.clock import Deadline
from stoker.loaders.driver.memory import Memory
from stoker.local.cluster import Cluster
from stoker.scheduler.events import Lost
from stoker.scheduler.tasks.slot import Exit, Slot
from stoker.wire.arena import Lender
from stoker.wire.sections import Taken
from stoker.worker.main import FAILED

if TYPE_CHECKING:  # its packages may not be installed where no other machine is asked for
    from stoker.remote.trainer.away import Away

# What a process that was told to end may take to say how it ended.
EXIT_WAIT_S = 5.0


class Workers(Cluster):
    """A Cluster over several machines. A slot's worker is here unless it was started away."""

    def __init__(self, here: Cluster, memory: Memory, there: "Away | None" = None) -> None:
        self._here, self._memory, self._there = here, memory, there
        self._clusters: list[Cluster] = [here] if there is None else [here, there]
        self._away: set[Slot] = set()  # whose latest worker is there

    def start(self, slot: Slot, after_s: float = 0.0, away: bool = False) -> socket.socket:
        """Start a worker. away: on another machine, asked for only if there is one that helps."""
        if away and self._there is not None:
            self._away.add(slot)
            return self._there.start(slot, after_s)
        self._away.discard(slot)
        self._memory.clear(slot)
        return self._here.start(slot, after_s)

    def start_rest(self) -> None:
        for cluster in self._clusters:
            cluster.start_rest()

    def drop_rest(self) -> None:
        for cluster in self._clusters:
            cluster.drop_rest()

    def signal(self, slot: Slot, signum: int) -> None:
        self._cluster_of(slot).signal(slot, signum)

    def wait_pid(self, slot: Slot, deadline: Deadline) -> int | None:
        return self._cluster_of(slot).wait_pid(slot, deadline)

    def wait_exit(self, slot: Slot, deadline: Deadline) -> Exit | None:
        return self._cluster_of(slot).wait_exit(slot, deadline)

    def news_fds(self) -> set[int]:
        return {fd for cluster in self._clusters for fd in cluster.news_fds()}

    def hear(self) -> None:
        for cluster in self._clusters:
            cluster.hear()

    def take_ended(self) -> set[Slot]:
        ended = [(cluster, cluster.take_ended()) for cluster in self._clusters]
        return {
            slot for cluster, slots in ended for slot in slots if self._cluster_of(slot) is cluster
        }

    @property
    def is_gone(self) -> bool:
        """Whether no worker can be started on this machine any more."""
        return self._here.is_gone

    def close(self, grace_s: float) -> None:
        for cluster in self._clusters[::-1]:
            cluster.close(grace_s)

    def _cluster_of(self, slot: Slot) -> Cluster:
        return self._there if slot in self._away and self._there is not None else self._here

    # -- what a Cluster need not tell --------------------------------------------------------------

    def news_fds_of(self, slot: Slot) -> set[int]:
        """Return the descriptors with news of this slot's worker, and of no other machine's."""
        return self._cluster_of(slot).news_fds()

    @property
    def away(self) -> set[Slot]:
        """Slots whose latest worker is on another machine."""
        return self._away

    def node_of(self, slot: Slot) -> str:
        """Return the node that the slot's worker is on; empty: this machine."""
        is_here = self._there is None or slot not in self._away
        return "" if is_here else self._there.node_of(slot)  # type: ignore[union-attr]

    def lender_of(self, slot: Slot) -> Lender | None:
        """Return the lender of the arena that the slot's latest worker writes to, if it has one."""
        if self._there is not None and slot in self._away:
            return self._there.lender_of(slot)
        return self._memory.lender(slot)

    def taken(self, slot: Slot) -> list[Taken]:
        """Return what of its arena a worker that starts in the slot must leave alone."""
        if self._there is not None and slot in self._away:
            lender = self._there.lender_of(slot)
            return [] if lender is None else lender.lent()
        return self._memory.taken(slot)

    @property
    def lenders(self) -> list[Lender]:
        away = [] if self._there is None else self._there.lenders
        return [*self._memory.lenders, *away]

    def hung_up(self, slot: Slot) -> None:
        """Note that nothing is read from the slot's worker any more."""
        if self._there is not None and slot in self._away:
            self._there.hung_up(slot)

    def kill(self, slot: Slot) -> None:
        """Kill a worker whose socket was closed, and wait for its end; not for one on another
        machine, which is told when it can be reached."""
        is_here = slot not in self._away
        if is_here:
            self.start_rest()  # one that is put off could not be seen to end
        self.signal(slot, signal.SIGKILL)
        if is_here:
            self.wait_exit(slot, Deadline(EXIT_WAIT_S))

    def lost(self, slot: Slot) -> Lost:
        """Return how a worker ended that closed its socket by itself: it is dead or dying."""
        how = self.wait_exit(slot, Deadline(EXIT_WAIT_S))
        if self._there is not None and slot in self._away:
            from stoker.remote.net.control import Cause

            how = how or Exit(slot, -1, -signal.SIGKILL)
            cause, begun = self._there.cause_of_end(slot), self._there.begun(slot)
            return Lost(
                slot,
                how if cause is Cause.OWN_END else None,
                cause is Cause.GIVEN_BACK,
                begun,
                how.code == FAILED,
            )
        if how is None:  # alive without a socket, or what starts workers is gone too
            self.signal(slot, signal.SIGKILL)
            how = self.wait_exit(slot, Deadline(EXIT_WAIT_S)) or Exit(
                slot, self.wait_pid(slot, Deadline(0)) or -1, -signal.SIGKILL
            )
        return Lost(slot, how, False, self._memory.begun(slot), how.code == FAILED)
