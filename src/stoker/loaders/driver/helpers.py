"""Links one loader to the fleet: offers capacity to the decider, asks for hosts, times batches.

Owner: the thread that iterates.
"""

from collections.abc import Set
from typing import TYPE_CHECKING

from stoker.clock import now_s, process_cpu_s
from stoker.errors import BrokenGuarantee
from stoker.loaders.driver import forks
from stoker.loaders.driver.demand import Demand
from stoker.local.sizing import local_slots
from stoker.scheduler.events import Late, Offered
from stoker.scheduler.late import Lateness
from stoker.scheduler.tasks.slot import Slot

if TYPE_CHECKING:  # its packages may not be installed where no other machine is asked for
    from stoker.remote.trainer.away import Away
    from stoker.remote.trainer.fleet import Fleet
    from stoker.shared_tensors import SharedTensors

# A loop that has paused so long says again how many workers it wants: they may have been given back
# (remote/trainer/receiver.py, IDLE_S). Not more often: whoever works without them shall not keep them.
PAUSE_S = 60.0
# How often a loop that never waits hears of other machines, which speak twice a second.
HEAR_EVERY_S = 0.1
# What the loop uses is told again after this much of its own work.
MEASURE_S = 1.0
MEAN_OF = 32  # batches


# Of this process, one: forks may see its spare arenas. With what its loops ask of it.
_known: "dict[Fleet, Demand | None]" = {}


class Mean:
    """A running mean of seconds; the latest count most. num: how many were added."""

    def __init__(self) -> None:
        self.num = 0
        self.mean_s = 0.0

    def add(self, seconds: float) -> None:
        self.num += 1
        self.mean_s += (seconds - self.mean_s) / min(self.num, MEAN_OF)


class Work:
    """Measures the cores and the time that the training loop uses between two batches."""

    def __init__(self) -> None:
        self.busy_cores: float | None = None
        self.step = Mean()
        self._began: tuple[float, float] | None = None
        self._wall_s = self._cpu_s = 0.0

    def began(self) -> None:
        """Note that the loop has got its batch."""
        self._began = now_s(), process_cpu_s()

    def ended(self) -> None:
        """Note that the loop wants its next batch."""
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


class Alone:
    """Stands in for Helpers if no other machine helps: takes every call and does nothing."""

    silent_s: float | None = None  # in which helpers would have said something

    def work_began(self) -> None:
        """Note that the training loop has got its batch."""

    def work_ended(self) -> None:
        """Note that the training loop wants its next batch."""

    def asked(self, slot: Slot, task_id: int) -> None:
        """Note that a worker was asked for a batch."""

    def measure(self, slot: Slot, task_id: int, work_s: float, was_awaited: bool) -> None:
        """Note that a batch has come, and how long its worker took."""

    def gone(self, slot: Slot) -> None:
        """Forget a worker that has ended."""

    def late_at_s(self, slot: Slot | None, task_id: int) -> float | None:
        """Return when the next batch to leave, which this slot owes, counts as late; None: never,
        or it is not known."""
        return None

    def late(self, slot: Slot, task_id: int) -> Late:
        """Return the Late event of the next batch, which this slot owes."""
        raise BrokenGuarantee(f"batch {task_id} of {slot} is late, but nobody can help")

    def is_due(self) -> bool:
        """Whether to take in news of other machines although nothing is waited for."""
        return False

    def offer(self, limit: int) -> Offered | None:
        """Return what others offer, if it is new. limit: workers that could be used at all."""
        return None

    def leave_if_written(self) -> bool:
        """Leave them, if a tensor that workers share with the loop was written to; returns whether."""
        return False

    def leave(self) -> None:
        """Lose the workers on other machines, for good."""

    def end_silent(self) -> None:
        """Note that nothing came for silent_s."""


class Helpers(Alone):
    """Tracks what other machines do for one loader. workers_there: slots with a worker there; shared:
    tensors that this machine's workers share with the loop, of which those there have copies."""

    def __init__(
        self,
        fleet: "Fleet",
        away: "Away",
        workers_there: Set[Slot],
        shared: "SharedTensors | None" = None,
    ) -> None:
        from stoker.remote.trainer.fleet import SILENT_S

        self._fleet, self.away, self._there = fleet, away, workers_there
        self._full_silence_s = SILENT_S
        # Of too many none of those there has a copy: the job is refused, and says why.
        self._shared = None if shared is None or shared.are_too_many else shared
        if fleet not in _known:
            _known[fleet] = Demand(*fleet.bounds) if fleet.bounds else None
            forks.also_spare.append(lambda: fleet.pool)
        self._work = Work()
        self._late = Lateness()
        self._made = Mean()  # what a batch takes a worker
        self._heard_s = 0.0
        self._offered: tuple[int, int, tuple[Slot, ...]] | None = None

    @property
    def silent_s(self) -> float | None:  # type: ignore[override]
        return None if self._fleet.is_gone else self._full_silence_s

    def work_began(self) -> None:
        self._work.began()

    def work_ended(self) -> None:
        self._work.ended()

    def asked(self, slot: Slot, task_id: int) -> None:
        self._late.asked(slot, task_id, now_s())

    def measure(self, slot: Slot, task_id: int, work_s: float, was_awaited: bool) -> None:
        self._made.add(work_s)
        self._late.answered(slot, task_id, now_s(), work_s, was_awaited)

    def gone(self, slot: Slot) -> None:
        self._late.gone(slot)

    def late_at_s(self, slot: Slot | None, task_id: int) -> float | None:
        return None if slot is None else self._late.late_at_s(slot, task_id)

    def late(self, slot: Slot, task_id: int) -> Late:
        return Late(slot, task_id, *self._late.told(slot, task_id, now_s()))

    def is_due(self) -> bool:
        return now_s() - self._heard_s > HEAR_EVERY_S

    def offer(self, limit: int) -> Offered | None:
        heard_s, self._heard_s = self._heard_s, now_s()
        self._fleet.hear()
        num_local = local_slots(self._fleet.num_cores, self._work.busy_cores)
        self._want(limit, num_local, self._heard_s - heard_s > PAUSE_S)
        if not self.away.fingerprint:
            return None
        offered = self.away.capacity, num_local, self.away.crowd(self._there)
        if offered == self._offered:
            return None
        self._offered = offered
        capacity, _, crowd = offered
        return Offered(capacity, num_local, self.away.fingerprint, crowd)

    def leave_if_written(self) -> bool:
        if self._shared is None or self._shared.is_as_it_was:
            return False
        self.leave()
        return True

    def leave(self) -> None:
        self._shared = None
        self.away.leave()

    def _want(self, limit: int, num_local: int, has_paused: bool) -> None:
        """Ask for as many hosts as the loop needs, if that is new or it has paused."""
        demand, step = _known[self._fleet], self._work.step
        if demand is None or min(self._made.num, step.num) < MEAN_OF:
            return
        is_new = demand.heard(self._made.mean_s, step.mean_s, num_local, limit, now_s())
        if is_new or has_paused:
            from stoker.remote.net.control import Want

            self._fleet.say(Want(demand.num_asked))

    def end_silent(self) -> None:
        """Kill the receiver: while it works it reports more often than every silent_s."""
        self._fleet.end_silent()
