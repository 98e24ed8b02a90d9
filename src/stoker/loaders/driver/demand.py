"""How many hosts a training loop needs: what its batches take to make, over what its steps take.

More are asked for at once, for the loop waits; fewer only after a while in which fewer would have
done, so that a validation between two epochs gives nothing back.
Pure: it is told the time.
"""

import math

HEADROOM = 1.2  # a batch takes a worker now more and now less than the mean
SHRINK_AFTER_S = 30.0
# Fewer than this share of what was asked for are worth a change: hosts that leave lose their work.
SHRINK_FRAC = 0.8


class Demand:
    """least, most: of `--workers MIN:MAX`."""

    def __init__(self, least: int, most: int) -> None:
        self._least = least
        self._most = most
        self.num_asked = max(1, least)
        self._low_since_s: float | None = None
        self._low_num = 0  # the most that were needed since then

    def heard(self, work_s: float, step_s: float, num_local: int, limit: int, now_s: float) -> bool:
        """Whether `num_asked` is another now.

        work_s: of a worker for a batch; step_s: of the loop between two batches; num_local:
        workers that the trainer's machine has besides; limit: workers that could be used at all.
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
