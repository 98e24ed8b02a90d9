"""Reads the clock, as the only module that imports `time`, and defines `Deadline`.

Every call that may wait is given a `Deadline`, which it passes on; no bare numbers of seconds.
"""

import contextlib
import time
from collections.abc import Callable, Iterator

now_s = time.monotonic
process_cpu_s = time.process_time
thread_cpu_s = time.thread_time
wall_ns = time.time_ns
_aside_s, _is_aside = 0.0, False


def work_s() -> float:
    """Return seconds, as `now_s` does, that stand still while something is done aside."""
    return now_s() - _aside_s


@contextlib.contextmanager
def aside() -> Iterator[None]:
    """Do what is no part of the job's own work, as to make something once more to compare it."""
    global _aside_s, _is_aside
    if _is_aside:
        yield
        return
    began_s, _is_aside = now_s(), True
    try:
        yield
    finally:
        _aside_s, _is_aside = _aside_s + now_s() - began_s, False


def time_zone() -> tuple[object, ...]:
    """Return what local times are computed with, as time.tzset() left it."""
    return time.tzname, time.timezone, time.altzone


class Deadline:
    """A moment after which waiting ends. seconds=None never ends."""

    __slots__ = ("_clock", "_end_s")

    def __init__(self, seconds: float | None, clock: Callable[[], float] = now_s) -> None:
        self._clock = clock
        self._end_s = None if seconds is None else clock() + seconds

    def left_s(self) -> float | None:
        """Return the seconds left, never negative; None without an end."""
        return None if self._end_s is None else max(0.0, self._end_s - self._clock())

    def is_before(self, other: "Deadline") -> bool:
        return self._end_s is not None and (other._end_s is None or self._end_s < other._end_s)

    def is_over(self) -> bool:
        return self._end_s is not None and self._clock() >= self._end_s
