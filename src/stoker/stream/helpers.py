"""One loader's share of other machines: where its workers are there, and what this one can spare.

Owner: the thread that iterates.
"""

import socket
from typing import TYPE_CHECKING

from stoker.clock import now_s, process_cpu_s
from stoker.cluster.local import Template
from stoker.cluster.sizing import local_slots
from stoker.scheduler.demand import Demand
from stoker.scheduler.events import Offered
from stoker.scheduler.late import Lateness
from stoker.stream import forks
from stoker.wire.slabs import ARENA_NBYTES, Lender

if TYPE_CHECKING:  # its packages may not be installed where no other machine is asked for
    from stoker.plane.fleet import Away, Fleet

SHIPPER = 1 << 20  # the template's slot of the process that packs the job
# What the loop uses is told again after this much of its own work.
MEASURE_S = 1.0
MEAN_OF = 32  # batches


# Of this process, one: forks may see its spare arenas. With what its loops ask of it.
_known: "dict[Fleet, Demand | None]" = {}


class Mean:
    """Of seconds; the latest count most. num: how many were added."""

    def __init__(self) -> None:
        self.num = 0
        self.mean_s = 0.0

    def add(self, seconds: float) -> None:
        self.num += 1
        self.mean_s += (seconds - self.mean_s) / min(self.num, MEAN_OF)


class Work:
    """What the training loop uses of this machine, and takes, between two batches."""

    def __init__(self) -> None:
        self.busy_cores: float | None = None
        self.step = Mean()
        self._began: tuple[float, float] | None = None
        self._wall_s = self._cpu_s = 0.0

    def began(self) -> None:
        """The loop has its batch."""
        self._began = now_s(), process_cpu_s()

    def ended(self) -> None:
        """It wants the next one."""
        if self._began is None:
            return
        wall_s, cpu_s = self._began
        self._began = None
        step_s = now_s() - wall_s
        self.step.add(step_s)
        self._wall_s += step_s
        self._cpu_s += process_cpu_s() - cpu_s
        if self._wall_s >= MEASURE_S:
            self.busy_cores = self._cpu_s / self._wall_s
            self._wall_s = self._cpu_s = 0.0


class Helpers:
    """See the module. template: of the loader; it forks the process that packs the job."""

    def __init__(self, fleet: "Fleet", template: Template) -> None:
        from stoker.plane.fleet import SILENT_S

        self._fleet = fleet
        self.silent_ms = int(SILENT_S * 1000)
        if fleet not in _known:
            _known[fleet] = Demand(*fleet.bounds) if fleet.bounds else None
            forks.also_spare.append(lambda: fleet.pool)
        self.away: Away = fleet.open(template.start(SHIPPER))
        self.fd = fleet.fileno()
        self.slots: set[int] = set()  # whose latest worker is there
        self.work = Work()
        self.late = Lateness()
        self._made = Mean()  # what a batch takes a worker
        self._arenas: dict[int, tuple[int, Lender]] = {}
        self._offered: tuple[int, int, tuple[int, ...]] | None = None

    def fileno(self) -> int:
        return self.fd

    def is_gone(self) -> bool:
        return self._fleet.is_gone

    def end_silent(self) -> None:
        """Nothing came for SILENT_S: the receiver tells more often that it lives."""
        self._fleet.end_silent()

    @property
    def lenders(self) -> list[Lender]:
        return [lender for _, lender in self._arenas.values()]

    def offer(self) -> Offered | None:
        """What there is, if that is news."""
        self._fleet.hear()
        if not self.away.fingerprint:
            return None
        num_local = local_slots(self._fleet.num_cores, self.work.busy_cores)
        offered = self.away.num_places, num_local, self.away.crowd(self.slots)
        if offered == self._offered:
            return None
        self._offered = offered
        num_places, num_local, crowd = offered
        return Offered(num_places, num_local, self.away.fingerprint, crowd)

    def measure(self, slot: int, task_id: int, work_s: float, was_awaited: bool) -> None:
        """A batch has come, which took its worker so long."""
        self._made.add(work_s)
        self.late.answered(slot, task_id, now_s(), work_s, was_awaited)

    def size(self, limit: int) -> None:
        """Ask for as many hosts as the loop needs. limit: workers that could be used at all."""
        demand, step = _known[self._fleet], self.work.step
        if demand is None or min(self._made.num, step.num) < MEAN_OF:
            return
        num_local = local_slots(self._fleet.num_cores, self.work.busy_cores)
        if demand.heard(self._made.mean_s, step.mean_s, num_local, limit, now_s()):
            self._fleet.say(("want", demand.num_asked))

    def start(self, slot: int, arena_nbytes: int) -> tuple[socket.socket, Lender | None]:
        """Where there is no memory, or no file descriptor, for one more, its socket ends at once."""
        self.slots.add(slot)
        try:
            number, lender = self._fleet.take_arena(min(arena_nbytes, ARENA_NBYTES))
        except OSError as error:
            return self.away.start_nowhere(slot, str(error)), None
        self._arenas[slot] = number, lender
        return self.away.start(slot, number, lender.arena), lender

    def left(self, slot: int) -> None:
        """Nobody writes to the slot's arena any more."""
        if slot in self._arenas:
            self._fleet.give_arena(*self._arenas.pop(slot))

    def node_of(self, slot: int) -> str:
        return self.away.node_of(slot) if slot in self.slots else ""

    def stay(self, slot: int) -> None:
        """The slot's worker is here again."""
        self.slots.discard(slot)

    def close(self) -> None:
        self.away.close()
