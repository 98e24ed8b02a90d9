"""Detects when the next batch is later than most were: then another worker may be asked.

A task begins when it was asked for, or when its worker answered the one before. How long it took is
what its worker says, or what the loop saw if it was waiting: a slow link is no reason to send a
batch twice.

Pure: the time is an argument.
"""

from collections import deque

from stoker.scheduler.tasks.slot import Slot

MIN_KNOWN = 20  # batches, before anything can be said of most
MAX_KNOWN = 100  # the latest; a p95 of fewer is one batch's whim
SORT_EVERY = 8  # batches: sorting a hundred times takes as long as all else here
MIN_LATE_S = 0.02  # below this the noise of a scheduler is late too
QUANTILE = 0.95


class Lateness:
    def __init__(self) -> None:
        self._asked_s: dict[Slot, dict[int, float]] = {}  # slot -> task -> when
        self._answered_s: dict[Slot, float] = {}  # slot -> when, last
        self._took_s: deque[float] = deque(maxlen=MAX_KNOWN)
        self._most_s = 0.0  # what most take
        self._num_since_sorted = SORT_EVERY
        self._told = (-1, 0.0)  # the task that was said to be late last, and how late it was

    def asked(self, slot: Slot, task_id: int, now_s: float) -> None:
        self._asked_s.setdefault(slot, {})[task_id] = now_s

    def answered(
        self, slot: Slot, task_id: int, now_s: float, work_s: float, was_awaited: bool
    ) -> None:
        """Record how long a task took. work_s: what the worker says that it took."""
        began_s = self._began_s(slot, task_id)
        self._asked_s.get(slot, {}).pop(task_id, None)
        self._answered_s[slot] = now_s
        if was_awaited and began_s is not None:
            work_s = max(work_s, now_s - began_s)
        self._took_s.append(work_s)
        self._num_since_sorted += 1

    def gone(self, slot: Slot) -> None:
        """Forget a slot whose worker has ended."""
        self._asked_s.pop(slot, None)
        self._answered_s.pop(slot, None)

    def late_at_s(self, slot: Slot, task_id: int) -> float | None:
        """Return when the task is to be called late; None: it is not known."""
        began_s = self._began_s(slot, task_id)
        if began_s is None or len(self._took_s) < MIN_KNOWN:
            return None
        told_id, told_s = self._told
        if told_id == task_id:  # what is too dear now may be worth it later
            return began_s + 2 * told_s
        if self._num_since_sorted >= SORT_EVERY:
            self._num_since_sorted = 0
            self._most_s = sorted(self._took_s)[int(QUANTILE * len(self._took_s))]
        return began_s + max(self._most_s, MIN_LATE_S)

    def told(self, slot: Slot, task_id: int, now_s: float) -> tuple[float, float]:
        """Note that it was called late. Returns how late it is, and a worker's mean batch time."""
        began_s = self._began_s(slot, task_id)
        late_s = 0.0 if began_s is None else now_s - began_s
        self._told = task_id, late_s
        return late_s, sum(self._took_s) / len(self._took_s)

    def _began_s(self, slot: Slot, task_id: int) -> float | None:
        asked_s = self._asked_s.get(slot, {}).get(task_id)
        return None if asked_s is None else max(asked_s, self._answered_s.get(slot, 0.0))
