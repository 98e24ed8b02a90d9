"""Knows which files, and which bytes of large ones, samples have read; and guesses what others will.

Owner: any thread at a time; what two do at once costs a guess.
"""

from collections import deque
from collections.abc import Iterable
from typing import Any, NamedTuple

from stoker.storage.learning.line import Line, Part

MAX_UNKNOWN = 8192  # samples: twice what a trainer tells ahead
MAX_PARTS = 1_000_000  # that are remembered as they were: some 200 MB


class Wanted(NamedTuple):
    """A file that will be read, or the part of it that will be."""

    path: str
    part: Part | None = None


class _Samples:
    """Of one dataset."""

    def __init__(self) -> None:
        self.opened: dict[Any, list[str]] = {}  # by index
        self.read: dict[Any, list[Wanted]] = {}
        self.lines: dict[str, Line] = {}  # by path
        self.has_line = False
        # Of whom nothing was known when they were told, by who told of them.
        self.unknown: dict[str, deque[Any]] = {}


class Learnt:
    """dataset: its name (upcoming.name_of)."""

    def __init__(self) -> None:
        self._of: dict[str, _Samples] = {}
        self._num_parts = 0

    def learn_opened(self, dataset: str, opened: Iterable[tuple[Any, str]]) -> None:
        """Take in which files samples have opened: index and path."""
        found: dict[Any, dict[str, None]] = {}
        for index, path in opened:
            found.setdefault(_hashable(index), {})[path] = None
        samples = self._of.setdefault(dataset, _Samples())
        samples.opened.update((index, list(paths)) for index, paths in found.items())

    def learn_read(
        self, dataset: str, read: Iterable[tuple[Any, dict[str, list[Part]]]]
    ) -> dict[str, list[Wanted]]:
        """Take in which parts of large files samples have read, by path. Returns what is likely now of samples
        that were told before, by who told of them."""
        samples = self._of.setdefault(dataset, _Samples())
        for index, parts_of in read:
            index = _hashable(index)
            for path, parts in parts_of.items():
                line = samples.lines.setdefault(path, Line())
                if type(index) is int:
                    line.note(index, max(parts, key=lambda part: part.end - part.start))
            if self._num_parts < MAX_PARTS and index not in samples.read:
                samples.read[index] = [
                    Wanted(path, part) for path, parts in parts_of.items() for part in parts
                ]
                self._num_parts += len(samples.read[index])
        if samples.has_line or not any(line.is_drawn for line in samples.lines.values()):
            return {}
        samples.has_line = True
        unknown, samples.unknown = samples.unknown, {}
        return {who: self.wanted(dataset, indices) for who, indices in unknown.items()}

    def wanted(
        self, dataset: str, indices: Iterable[Any], teller: str | None = None
    ) -> list[Wanted]:
        """Return what samples are likely to read, in order. teller: who will be told by `learn_read` where
        nothing is known of any yet."""
        samples = self._of.setdefault(dataset, _Samples())
        if teller is not None and not samples.has_line:
            samples.unknown.setdefault(teller, deque(maxlen=MAX_UNKNOWN)).extend(indices)
        return [each for index in indices for each in _wanted(samples, _hashable(index))]

    def forget(self, teller: str) -> None:
        """Note that what somebody told of is over."""
        for samples in tuple(self._of.values()):
            samples.unknown.pop(teller, None)


def _wanted(samples: _Samples, index: Any) -> list[Wanted]:
    # A file of which parts are read is not wanted as a whole.
    found = [Wanted(path) for path in samples.opened.get(index, ()) if path not in samples.lines]
    if index in samples.read:
        return found + samples.read[index]
    if type(index) is int:
        for path, line in tuple(samples.lines.items()):
            part = line.part_of(index)
            if part is not None and part.end > 0:
                found.append(Wanted(path, part))
    return found


def _hashable(index: Any) -> Any:
    return tuple(map(_hashable, index)) if isinstance(index, list) else index
