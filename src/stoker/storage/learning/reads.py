"""Finds out which sample a read of a large file belongs to.

The kernel tells who reads, and a worker when it made each of its samples: what it read between was the
sample's. So a mapping is seen, too, of which no hook in the worker could tell.
Any thread may call it.
"""

import threading
from collections import deque
from collections.abc import Iterable
from typing import Any, NamedTuple

from stoker.storage.learning.line import Part

MAX_READERS = 512  # processes; the ones that have begun before all others are forgotten
MAX_READS = 1024  # of each, until it tells: 128 MB in pieces of 128 KiB
JOINED_NBYTES = 256 << 10  # what lies so near is one part


class Made(NamedTuple):
    """A sample, and from when to when it was made (clock.now_s, which all of a machine's processes share)."""

    index: Any
    began_s: float
    ended_s: float


class Read(NamedTuple):
    """What a sample has read of a file, and how large that is."""

    file_nbytes: int
    parts: list[Part]


class Reads:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._of: dict[int, deque[tuple[float, str, int, int, int]]] = {}  # by process

    def note(
        self, reader: int, path: str, start: int, end: int, file_nbytes: int, at_s: float
    ) -> None:
        """Note that a process reads bytes [start, end) of a file."""
        with self._lock:
            noted = self._of.get(reader)
            if noted is None:
                while len(self._of) >= MAX_READERS:
                    del self._of[next(iter(self._of))]
                noted = self._of[reader] = deque(maxlen=MAX_READS)
            noted.append((at_s, path, start, end, file_nbytes))

    def take(self, reader: int, samples: Iterable[Made]) -> list[tuple[Any, dict[str, Read]]]:
        """Return what samples of a process have read, those that have, by path; they come in the order of
        time. That, and what was read before, is forgotten."""
        taken = []
        with self._lock:
            noted = self._of.get(reader) or deque()
            for made in samples:
                while noted and noted[0][0] < made.began_s:
                    noted.popleft()
                found: dict[str, Read] = {}
                while noted and noted[0][0] <= made.ended_s:
                    _, path, start, end, nbytes = noted.popleft()
                    found.setdefault(path, Read(nbytes, [])).parts.append(Part(start, end))
                if found:
                    joint = {
                        p: Read(each.file_nbytes, joined(each.parts)) for p, each in found.items()
                    }
                    taken.append((made.index, joint))
        return taken


def joined(parts: Iterable[Part]) -> list[Part]:
    """Return parts in order; those that touch, or nearly do, as one."""
    found: list[Part] = []
    for part in sorted(parts):
        if found and part.start <= found[-1].end + JOINED_NBYTES:
            found[-1] = Part(found[-1].start, max(found[-1].end, part.end))
        else:
            found.append(part)
    return found
