"""Knows which files, and which bytes of large ones, samples have read; and guesses what others will.

Any thread may call it.
"""

import threading
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from stoker.storage.learning.line import Line, Part
from stoker.storage.learning.reads import Read

MAX_UNKNOWN = 8192  # samples: twice what a trainer tells ahead
MAX_PARTS = 1_000_000  # that are remembered as they were: some 200 MB
MAX_LINES = 64  # files of a dataset of which it is looked whether samples lie on a line
MAX_GUESSED = 2  # files in which a sample is looked for by lines
MISSES = 64  # more than hits: then samples read something else each time


class Wanted(NamedTuple):
    """A file that will be read, or the part of it that will be."""

    path: str
    part: Part | None = None


class _Samples:
    """Of one dataset."""

    def __init__(self) -> None:
        self.opened: dict[Any, list[str]] = {}  # by index
        self.read: dict[Any, Sequence[Wanted]] = {}
        self.num_other = (
            0  # samples that have read something else than before, less those that have not
        )
        self.lines: dict[str, Line] = {}  # by path
        self.drawn: dict[str, Line] = {}  # those of them by which can be guessed
        # Of whom nothing was known when they were told, by who told of them.
        self.unknown: dict[str, deque[Any]] = {}


class Learnt:
    """dataset: its name (upcoming.name_of)."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards all below
        self._of: dict[str, _Samples] = {}
        self._num_parts = 0

    def learn_opened(self, dataset: str, opened: Iterable[tuple[Any, str]]) -> None:
        """Take in which files samples have opened: index and path."""
        found: dict[Any, dict[str, None]] = {}
        for index, path in opened:
            found.setdefault(_hashable(index), {})[path] = None
        with self._lock:
            samples = self._of.setdefault(dataset, _Samples())
            samples.opened.update((index, list(paths)) for index, paths in found.items())

    def learn_read(
        self, dataset: str, read: Iterable[tuple[Any, dict[str, Read]]]
    ) -> dict[str, list[Wanted]]:
        """Take in which parts of large files samples have read, by path. Returns what is likely now of samples
        that were told before, by who told of them."""
        found: dict[str, list[Wanted]] = {}
        with self._lock:
            samples = self._of.setdefault(dataset, _Samples())
            for index, files in read:
                index = _hashable(index)
                self._remember(samples, index, files)
                if type(index) is int:
                    for path in _draw(samples, index, files):
                        _guess_again(samples, path, found)
        return found

    def _remember(self, samples: _Samples, index: Any, files: dict[str, Read]) -> None:
        now = tuple(Wanted(path, part) for path, read in files.items() for part in read.parts)
        before = samples.read.get(index)
        if before is None:
            if self._num_parts >= MAX_PARTS:
                return
        else:
            samples.num_other += 1 if any(not _is_in(each, before) for each in now) else -1
            samples.num_other = max(samples.num_other, -MISSES)
            if len(now) < len(before):  # the kernel had the rest
                return
        self._num_parts += len(now) - len(before or ())
        samples.read[index] = now

    def wanted(
        self, dataset: str, indices: Iterable[Any], teller: str | None = None
    ) -> list[Wanted]:
        """Return what samples are likely to read, in order. teller: who will be told by `learn_read` of those
        of which nothing is known yet."""
        found = []
        with self._lock:
            samples = self._of.setdefault(dataset, _Samples())
            for index in indices:
                guessed = _wanted(samples, _hashable(index))
                if guessed:
                    found += guessed
                elif teller is not None and type(index) is int:
                    unknown = samples.unknown.setdefault(teller, deque(maxlen=MAX_UNKNOWN))
                    unknown.append(index)
        return found

    def forget(self, teller: str) -> None:
        """Note that what somebody told of is over."""
        with self._lock:
            for samples in self._of.values():
                samples.unknown.pop(teller, None)


def _draw(samples: _Samples, index: int, files: dict[str, Read]) -> list[str]:
    """Take a sample in where it lies. Returns the files of which a line is drawn now that was none before."""
    new = []
    for path, read in files.items():
        line = samples.lines.get(path)
        if line is None:
            if len(samples.lines) >= MAX_LINES:
                continue
            line = samples.lines[path] = Line(read.file_nbytes)
        line.note(index, max(read.parts, key=lambda part: part.end - part.start))
        if not line.is_drawn:
            samples.drawn.pop(path, None)
        elif path not in samples.drawn:
            samples.drawn[path] = line
            new.append(path)
    return new


def _guess_again(samples: _Samples, path: str, found: dict[str, list[Wanted]]) -> None:
    """Add what can be guessed of samples, by a file's line, that were told when nothing was known of them."""
    line = samples.drawn[path]
    for teller, unknown in samples.unknown.items():
        rest: deque[Any] = deque(maxlen=MAX_UNKNOWN)
        for index in unknown:
            part = line.part_of(index)
            if part is None:
                rest.append(index)
            else:
                found.setdefault(teller, []).append(Wanted(path, part))
        samples.unknown[teller] = rest


def _wanted(samples: _Samples, index: Any) -> list[Wanted]:
    found: list[Wanted] = []
    if type(index) is int:
        for path, line in samples.drawn.items():
            part = line.part_of(index)
            if part is not None and len(found) < MAX_GUESSED:
                found.append(Wanted(path, part))
    if not found and samples.num_other < MISSES:
        found += samples.read.get(index, ())
    # A file of which parts are read is not wanted as a whole.
    in_parts = {each.path for each in found}
    return [Wanted(path) for path in samples.opened.get(index, ()) if path not in in_parts] + found


def _is_in(wanted: Wanted, others: Sequence[Wanted]) -> bool:
    return any(
        wanted.path == other.path
        and wanted.part is not None
        and other.part is not None
        and other.part.start <= wanted.part.start
        and wanted.part.end <= other.part.end
        for other in others
    )


def _hashable(index: Any) -> Any:
    return tuple(map(_hashable, index)) if isinstance(index, list) else index
