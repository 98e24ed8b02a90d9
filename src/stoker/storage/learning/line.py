"""Where samples lie in a file: rows of the same size lie on a line.

Pure. What is known of a sample is what the kernel has asked for while it was made, which is in whole pages, begins
before the sample (mmap(2) reads around what is touched) and may be what nobody asked for, as a header.
"""

from collections import deque
from statistics import median
from typing import NamedTuple

NUM_POINTS = 64  # the latest, by which it is drawn
MIN_POINTS = 4
NEAR_NBYTES = 256 << 10  # what the kernel reads around a page, and as much again
FEW_FRAC = 0.75  # of the points have to lie on it


class Part(NamedTuple):
    """Bytes [start, end) of a file."""

    start: int
    end: int


class _Drawn(NamedTuple):
    slope: float
    at_zero: float
    nbytes: float


class Line:
    """start of sample i = at_zero + slope * i, if that is so, and within the file."""

    def __init__(self, file_nbytes: int) -> None:
        self._file_nbytes = file_nbytes
        self._points: deque[tuple[int, Part]] = deque(maxlen=NUM_POINTS)
        self._drawn: _Drawn | None = None
        self._num_until_drawn = MIN_POINTS
        self._num = 0

    def note(self, index: int, part: Part) -> None:
        """Take in where a sample was."""
        self._points.append((index, part))
        self._num += 1
        if self._num >= self._num_until_drawn:
            # At 4, 8, ..., 64, and then at every 64 more: each takes 0.1 ms.
            self._num_until_drawn += min(self._num, NUM_POINTS)
            self._drawn = _draw(tuple(self._points))

    @property
    def is_drawn(self) -> bool:
        return self._drawn is not None

    def part_of(self, index: int) -> Part | None:
        """Return where a sample is likely to be; None if nothing tells, or it is in another file."""
        if self._drawn is None:
            return None
        slope, at_zero, nbytes = self._drawn
        start = at_zero + slope * index
        if not -NEAR_NBYTES < start < self._file_nbytes:
            return None
        return Part(max(0, round(start)), min(round(start + nbytes), self._file_nbytes))


def _draw(points: tuple[tuple[int, Part], ...]) -> _Drawn | None:
    """Return the line on which most of the points lie; None if there is none, or all are at one place. Its slope
    is the median of slopes between points half of all apart (after Theil and Sen), which a few that are off do
    not move."""
    ordered = sorted(points)
    half = len(ordered) // 2
    slopes = [
        (there.start - here.start) / (other - index)
        for (index, here), (other, there) in zip(ordered, ordered[half:], strict=False)
        if other != index
    ]
    if not slopes:
        return None
    slope = median(slopes)
    if abs(slope) * (ordered[-1][0] - ordered[0][0]) <= 2 * NEAR_NBYTES:
        return None  # as of files that are read from their beginning, whatever the sample
    at_zero = median(part.start - slope * index for index, part in ordered)
    near = [
        part for index, part in ordered if abs(part.start - slope * index - at_zero) <= NEAR_NBYTES
    ]
    if len(near) < FEW_FRAC * len(ordered):
        return None
    return _Drawn(slope, at_zero, median(part.end - part.start for part in near))
