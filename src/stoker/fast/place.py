"""Decides when a faster way is compared with the original, and gives it up after one difference.

Owner: the worker's main thread.
"""

from typing import Protocol

from stoker.fast.report import NUM_PROVE, FastWish
from stoker.reports.metrics import FastPlace

CHECK_EVERY = 256  # results of a place that was compared often enough: one of so many is compared
_DIFFERED = "a result differed from the original's"


class FastFunctions(Protocol):
    """Faster functions of some libraries, in a worker."""

    def look(self) -> None:
        """Take in what was imported or replaced since the last look."""

    def news(self) -> list[FastPlace]:
        """Return what is new since the last call."""


class Place:
    """One way to make something, in this worker. why: it is left alone; empty if it is not."""

    def __init__(self, name: str, wish: FastWish) -> None:
        self.name = name
        self.why = wish.known.get(name, "")
        self._num_to_prove = 0 if name in wish.known else NUM_PROVE
        self._checks_all = wish.audit
        self._num_made = 0
        self.news = FastPlace(name)  # since the last batch

    def must_check(self) -> bool:
        """Count one more. Returns whether it is to be compared."""
        self._num_made += 1
        self.news.num_made += 1
        return bool(self._num_to_prove or self._checks_all or self._num_made % CHECK_EVERY == 0)

    def note(self, is_same: bool) -> None:
        """Count a comparison."""
        self._num_to_prove = max(0, self._num_to_prove - 1)
        self.news.num_checked += 1
        if not is_same:
            self.leave(_DIFFERED)

    def leave(self, why: str) -> None:
        """Leave it alone from here on."""
        self.why = self.news.why = why


def news_of(places: list[Place]) -> list[FastPlace]:
    """Return what is new of places since the last call."""
    new = [place for place in places if place.news.num_made or place.news.why]
    told = [place.news for place in new]
    for place in new:
        place.news = FastPlace(place.name)
    return told
