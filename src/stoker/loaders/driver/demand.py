"""Decides how many hosts a loop needs: the time to make a batch, over the time of a step.

More are asked for at once, since the loop is waiting; fewer only once fewer have been enough for a
while, so that a validation between two epochs gives no host back.
Pure: the time is an argument.
"""

import math

HEADROOM = 1.2  # a batch takes a worker now more and now less than the mean
SHRINK_AFTER_S = 30.0
# Fewer than this share of what was asked for are worth a change: hosts that leave lose their work.
SHRINK_FRAC = 0.8


class Demand:
    """The number of hosts to ask for. least, most: of `--workers MIN:MAX`."""

    def __init__(self, least: int, most: int) -> None:
        self._least = least
        self._most = most
        self.num_asked = max(1, least)
        self._low_since_s: float | None = None
        self._low_num = 0  # the most that were needed since then

    def heard(self, work_s: float, step_s: float, num_local: int, limit: int, now_s: float) -> bool:
        """Update `num_asked` from measurements; whether it changed.

        work_s: a worker's time for a batch; step_s: the loop's time between two batches; num_local:
        workers that the trainer's machine adds; limit: workers that could be used at all.
        """
        num_slots = min(math.ceil(HEADROOM * work_s / max(step_s, 1e-6)), limit)
        num_needed = min(max(num_slots - num_local, self._least, 1), self._most)
        if num_needed > self.num_asked:
            return self._ask(num_needed)
        if num_needed > SHRINK_FRAC * self.num_asked:
            self._low_since_s = None
            return False
        if self._low_since_s is None:
            self._low_since_s, self._low_num = now_s, num_needed
        self._low_num = max(self._low_num, num_needed)
        if now_s - self._low_since_s < SHRINK_AFTER_S:
            return False
        return self._ask(self._low_num)

    def _ask(self, num: int) -> bool:
        self.num_asked = num
        self._low_since_s = None
        return True
