"""Tries steps with and without compression, in turn, until it is clear which are faster.

All ranks are fed the same numbers, and so come to the same answers.
Pure: standard library only.
"""

from dataclasses import dataclass, field
from statistics import median
from typing import NamedTuple

# Chosen, and not measured: what a user would call faster, and what noise of 10 % a step allows.
NUM_WARM = 3  # steps; buckets are built anew after the first, and memory is touched
NUM_TIMED = 3  # steps of one way in a row, after one that is not counted: the other's tail
MAX_ROUNDS = 4
CLEAR = 1.3  # times faster: one round is enough
GAIN = 1.03  # times faster that codes must be


class TrialResult(NamedTuple):
    """The medians of a step with and without compression, and whether compression stays."""

    is_coded: bool
    plain_s: float
    coded_s: float


@dataclass
class Trial:
    """Says whether steps are compressed. Call `step` every step, `judge` if that returned True."""

    verdict: TrialResult | None = None
    is_coded: bool = True
    _num: int = 0  # steps that have ended, since the warm ones
    _times: dict[bool, list[float]] = field(default_factory=lambda: {True: [], False: []})
    _num_warm: int = NUM_WARM

    def step(self, seconds: float) -> bool:
        """Note a step's end. Returns whether a round ended too: then `judge` before the next."""
        if self.verdict is not None:
            return False
        if self._num_warm:
            self._num_warm -= 1
            self.is_coded = self._num_warm > 0
            return False
        place = self._num % (NUM_TIMED + 1)
        if place:  # the first of a row is not counted
            self._times[self.is_coded].append(seconds)
        self._num += 1
        if place == NUM_TIMED:
            self.is_coded = not self.is_coded
        return self._num % (2 * (NUM_TIMED + 1)) == 0

    def medians(self) -> tuple[float, float]:
        """Return this rank's medians: a step without compression, and one with."""
        return median(self._times[False]), median(self._times[True])

    def judge(self, plain_s: float, coded_s: float) -> None:
        """Decide from the slowest rank's medians, which are the same numbers on each rank."""
        num_rounds = self._num // (2 * (NUM_TIMED + 1))
        gain = plain_s / coded_s
        if num_rounds >= MAX_ROUNDS or not 1 / CLEAR < gain < CLEAR:
            self.verdict = TrialResult(gain >= GAIN, plain_s, coded_s)
            self.is_coded = self.verdict.is_coded
