"""Allocates the extents of an arena: first fit from the bottom, neighbours merged.

Promise: extents never overlap. Lowest address first keeps the touched part of a sparse arena small,
and gives back memory that is still in the processor's cache. Pure.
"""

from bisect import bisect_left
from collections.abc import Iterable

ALIGN_NBYTES = 4096  # a page: tensors start where torch's own shared memory would start


class Extents:
    """Allocator of offsets from `start` to `limit_nbytes`, both multiples of ALIGN_NBYTES or rounded
    inwards. `taken`: extents (offset, nbytes) not to touch, there or elsewhere."""

    def __init__(
        self, limit_nbytes: int, taken: Iterable[tuple[int, int]] = (), start: int = 0
    ) -> None:
        self._size: dict[int, int] = {}  # in use: offset -> rounded nbytes
        self._starts: list[int] = []  # free extents, ascending
        self._ends: list[int] = []
        end_of_last = rounded(start) if start else 0
        limit = limit_nbytes - limit_nbytes % ALIGN_NBYTES
        for offset, nbytes in sorted(taken):
            self._append_free(end_of_last, min(offset, limit))
            self._size[offset] = rounded(nbytes)
            end_of_last = max(end_of_last, offset + rounded(nbytes))
        self._append_free(end_of_last, limit)

    def take(self, nbytes: int) -> int | None:
        """Return the offset of a new extent; None if none is large enough."""
        wanted = rounded(nbytes)
        for i, start in enumerate(self._starts):
            if self._ends[i] - start >= wanted:
                self._size[start] = wanted
                if self._ends[i] - start == wanted:
                    del self._starts[i], self._ends[i]
                else:
                    self._starts[i] = start + wanted
                return start
        return None

    def give(self, offset: int) -> None:
        """Free an extent of `take`, or one taken from the start. Raises KeyError otherwise."""
        end = offset + self._size.pop(offset)
        i = bisect_left(self._starts, offset)
        joins_left = i > 0 and self._ends[i - 1] == offset
        joins_right = i < len(self._starts) and self._starts[i] == end
        if joins_left and joins_right:
            self._ends[i - 1] = self._ends.pop(i)
            del self._starts[i]
        elif joins_left:
            self._ends[i - 1] = end
        elif joins_right:
            self._starts[i] = offset
        else:
            self._starts.insert(i, offset)
            self._ends.insert(i, end)

    def size_of(self, offset: int) -> int:
        """Return the rounded bytes of an extent that is in use. Raises KeyError otherwise."""
        return self._size[offset]

    @property
    def used_nbytes(self) -> int:
        return sum(self._size.values())

    def _append_free(self, start: int, end: int) -> None:
        if end > start:
            self._starts.append(start)
            self._ends.append(end)


def rounded(nbytes: int) -> int:
    """Return the bytes of the extent that so many bytes take: whole pages, at least one."""
    return max(ALIGN_NBYTES, -(-nbytes // ALIGN_NBYTES) * ALIGN_NBYTES)
