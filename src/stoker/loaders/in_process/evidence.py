"""Decides whether others may make a `num_workers=0` loader's batches, and whether that gains.

Pure: measurements around one batch go in, a reason in words comes out.
"""

from dataclasses import dataclass

from stoker.local.sizing import batch_s, workers_wanted

# A batch that takes less is not worth a look. Measured: benchmarks/many_loaders.py, in-process
SHORT_BATCH_S = 0.002
# To fork the processes and to end them costs about 50 ms; an epoch must save more than that.
MIN_SAVED_S = 0.2
MIN_GAIN = 1.1
TOO_LITTLE = "too little of the epoch is left to gain from"
# Looks may cost this share of a batch. They count as part of both sides' work, so that less may be too
# much; beyond it an estimate that is wrong by as much would cost more than is gained.
LOOK_FRAC = 0.25


@dataclass(frozen=True, slots=True)
class Usual:
    """Measurements of a loader from before others made its batches. Seconds are a batch's.

    From the first epoch's purity check; not `num_taken`: while others work nothing is timed.
    """

    fetch_s: float
    step_s: float  # of the training loop
    samples_draw: bool
    num_taken: int = 0  # batches, by the loop, in its longest epoch

    def num_workers(self, num_slots: int) -> int:
        """Return how many processes to use; one if each batch begins where the last one ended."""
        return workers_wanted(self.fetch_s, self.step_s, 1 if self.samples_draw else num_slots)


@dataclass(frozen=True, kw_only=True, slots=True)
class Evidence:
    """Measurements of one batch that the training process made between two fingerprints."""

    fetch_s: float
    step_s: float  # of the training loop, between the batch before and this one
    look_s: float  # CPU time of one look
    has_moved: bool  # what the samples can reach
    may_run_ahead: bool  # the sampler
    samples_draw: bool  # from a global generator
    loop_draws: bool
    num_left: int  # batches of the epoch
    num_slots: int
    num_cores: int

    @property
    def num_workers(self) -> int:
        return Usual(self.fetch_s, self.step_s, self.samples_draw).num_workers(self.num_slots)

    def why_here(self) -> str:
        """Return why the training process goes on to make the batches; empty: others may."""
        if self.has_moved:
            return "its state moves"
        if self.look_s > LOOK_FRAC * self.fetch_s:
            return "its state is too large to watch beside batches as short as these"
        if not self.may_run_ahead:
            return "its sampler cannot be asked ahead"
        if self.samples_draw and self.loop_draws:
            return "its samples draw random numbers, and so does the training loop"
        if (self.fetch_s + self.step_s) / max(self._after_s(), 1e-9) < MIN_GAIN:
            return "there is nothing to gain"
        if self._saved_s() * self.num_left < MIN_SAVED_S:
            return TOO_LITTLE
        return ""

    def _after_s(self) -> float:
        """Return the seconds a batch would take: the loop looks before each, the process after."""
        looked = self.fetch_s + self.look_s, self.step_s + self.look_s
        return batch_s(*looked, self.num_workers, self.num_cores)

    def _saved_s(self) -> float:
        """Return the seconds that others would save per batch."""
        return self.fetch_s + self.step_s - self._after_s()
