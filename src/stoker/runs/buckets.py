"""Adds up looks at loaders: spans of time that grow with the run, step times, the slowest steps.

A look is what a loader has delivered and waited for so far (reports/log.py); what happened between two is shared
out to no finer grain. Pure.
"""

import heapq
import math
from collections.abc import Sequence
from typing import NamedTuple

from stoker.stalls.split import Seen

# How long a span is while a run is so old. A day has 2,880 spans, which is what a run's file grows by.
SPANS_S = ((600, 1), (3 * 3600, 10), (math.inf, 60))
NUM_SLOWEST = 20
BINS_PER_OCTAVE = 4  # of the histogram of step times: a bin is 19 % wide


class Look(NamedTuple):
    """Holds what one loader's record said at a moment. at_s: of clock.now_s; all else: since the run began."""

    at_s: float
    number: int
    num_batches: int
    num_samples: int
    wait_s: float
    busy_s: float
    seen: Seen = Seen()


class Row(NamedTuple):
    """Says what one loader did in a span. longest_s: the longest step in it."""

    number: int
    num_batches: int
    num_samples: int
    wait_s: float
    busy_s: float
    longest_s: float
    seen: Seen = Seen()


class Span(NamedTuple):
    """Holds what happened in a time. at_s: where it begins, from the run's beginning on."""

    at_s: float
    long_s: float
    rows: list[Row]


class Slow(NamedTuple):
    """Describes a slow step. batch: its number, from 1 on; step_s: until the next batch was there; wait_s: of it; num: how
    many steps were looked at together, of which this is the mean, and the batch the last; why: its batch took long to make, if
    that is known."""

    step_s: float
    wait_s: float
    number: int
    batch: int
    at_s: float
    seen: Seen = Seen()
    num: int = 1
    why: str = ""


class Why(NamedTuple):
    """Says why a loader's batch took long to make. batch: its number, from 1 on; why: in words."""

    number: int
    batch: int
    why: str


class Buckets:
    """Adds up the looks of a run. began_s: of clock.now_s."""

    def __init__(self, began_s: float) -> None:
        self.histogram: dict[int, int] = {}  # how many steps, by bin
        self._began_s = began_s
        self._last: dict[int, Look] = {}
        self._slowest: list[Slow] = []  # a heap
        self._at_s = 0.0  # where the open span begins
        self._rows: dict[int, Row] = {}

    def add(self, look: Look) -> list[Span]:
        """Take in a look, and return the spans that are over."""
        done = self.until(look.at_s)
        before = self._last.get(look.number) or Look(look.at_s, look.number, 0, 0, 0.0, 0.0)
        self._last[look.number] = look
        num = look.num_batches - before.num_batches
        wait_s, busy_s = look.wait_s - before.wait_s, look.busy_s - before.busy_s
        seen = look.seen.minus(before.seen)
        step_s = (wait_s + busy_s) / num if num > 0 else 0.0
        row = self._rows.get(look.number) or Row(look.number, 0, 0, 0.0, 0.0, 0.0)
        self._rows[look.number] = Row(
            look.number,
            row.num_batches + num,
            row.num_samples + look.num_samples - before.num_samples,
            row.wait_s + wait_s,
            row.busy_s + busy_s,
            max(row.longest_s, step_s),
            row.seen.plus(seen),
        )
        if num > 0:
            bin_ = bin_of(step_s)
            self.histogram[bin_] = self.histogram.get(bin_, 0) + num
            at_s = look.at_s - self._began_s
            slow = Slow(
                step_s, wait_s / num, look.number, look.num_batches, at_s, seen.of(num), num
            )
            (heapq.heappush if len(self._slowest) < NUM_SLOWEST else heapq.heappushpop)(
                self._slowest, slow
            )
        return done

    def until(self, now_s: float) -> list[Span]:
        """Return the spans that are over by now."""
        run_s = now_s - self._began_s
        long_s = long_at(self._at_s)
        if run_s < self._at_s + long_s:
            return []
        done = self.rest()
        self._at_s = run_s - run_s % long_at(run_s)
        return done

    def rest(self) -> list[Span]:
        """Return the open span, if anything happened in it, and begin another."""
        rows, self._rows = list(self._rows.values()), {}
        return [Span(self._at_s, long_at(self._at_s), rows)] if rows else []

    def slowest(self, whys: Sequence[Why] = ()) -> list[Slow]:
        """Return the slowest steps, the slowest first. whys: what is known of batches that took long to make."""
        known: dict[int, list[Why]] = {}
        for each in whys:
            known.setdefault(each.number, []).append(each)
        return [
            slow._replace(why=_why_of(slow, known.get(slow.number, ())))
            for slow in sorted(self._slowest, reverse=True)
        ]


def _why_of(slow: Slow, whys: Sequence[Why]) -> str:
    """Return why a step was slow: its batch took long to make."""
    return next((w.why for w in whys if slow.batch - slow.num < w.batch <= slow.batch), "")


def long_at(run_s: float) -> float:
    """Return how long a span is that begins at this age of the run."""
    return next(long_s for until_s, long_s in SPANS_S if run_s < until_s)


def bin_of(step_s: float) -> int:
    """Return the bin of a step time; of no time at all, that of a microsecond."""
    return math.floor(math.log2(max(step_s, 1e-6)) * BINS_PER_OCTAVE)


def bounds_of(bin_: int) -> tuple[float, float]:
    """Return where a bin begins and ends, in seconds."""
    return 2 ** (bin_ / BINS_PER_OCTAVE), 2 ** ((bin_ + 1) / BINS_PER_OCTAVE)
