"""Hands out this process's shelf of remembered samples to the workers of its loaders.

One shelf a process, made with the first loader that may use it. What is on it lives as long as this
process or a worker does.
Owner: the thread that iterates.
"""

import os
import threading
from collections.abc import Callable, Hashable, Sequence
from typing import NamedTuple

from stoker.memory.store.disk import DiskWish
from stoker.memory.store.shelf import Shelf, ShelfAccess, make_shelf


class Wish(NamedTuple):
    """What a loader wants of the shelf. find_budget: computes its bytes, if there is none yet;
    loader: bytes that tell the loader, in every epoch; audit: keep samples and compare them, and
    never serve one; disk: where more of them may be kept;
    trusted: compiled modules that depend on nothing but what they are given."""

    find_budget: Callable[[], int]
    loader: bytes
    audit: bool
    disk: DiskWish | None = None
    trusted: frozenset[str] = frozenset()
    asked_nbytes: int | None = None  # by the user: on each machine

    @property
    def away(self) -> "WishAway":
        """What it is on another machine."""
        return WishAway(self.loader, self.audit, self.trusted, self.asked_nbytes)


class WishAway(NamedTuple):
    """What a loader wants of another machine's shelf: see `Wish`."""

    loader: bytes
    audit: bool
    trusted: frozenset[str]
    asked_nbytes: int | None

    def access(self, shelf: Shelf, seat: int | None) -> ShelfAccess:
        """Return what a worker there is given."""
        if self.asked_nbytes is not None:
            shelf.budget_nbytes = min(shelf.budget_nbytes, self.asked_nbytes)
        return ShelfAccess(shelf, seat, self.loader, self.audit, self.trusted)


_lock = threading.RLock()  # guards _shelf, and the seats that are taken of it
_shelf: Shelf | None = None
_owner_pid = 0
_is_refused = False


def own_shelf() -> Shelf | None:
    """Return this process's shelf, if it has one."""
    return _shelf if _owner_pid == os.getpid() else None


def _get(wish: Wish) -> Shelf | None:
    global _shelf, _owner_pid, _is_refused
    if _owner_pid != os.getpid():  # a forked child's writes would meet its parent's
        _shelf, _owner_pid, _is_refused = None, os.getpid(), False
    if _shelf is None and not _is_refused:
        _shelf = make_shelf(wish.find_budget())
        _is_refused = _shelf is None
        if _shelf is not None and wish.disk is not None:
            _shelf.add_disk(wish.disk)
    return _shelf


class Seats:
    """The seats of one loader's workers. are_spawned: they inherit nothing."""

    def __init__(
        self, wish: Wish | None, slots: Sequence[Hashable], are_spawned: bool = False
    ) -> None:
        self._wish = wish
        self._shelf: Shelf | None = None
        self._seat_of: dict[Hashable, int] = {}
        self._num = 0  # of workers
        if wish is not None:
            with _lock:
                self._shelf = _get(wish)
                if are_spawned and self._shelf is not None and not self._shelf.can_travel:
                    self._shelf = None
                if self._shelf is not None:
                    self._shelf.make_room()
                    seats = self._shelf.take_seats(len(slots))
                    self._seat_of = dict(zip(slots, seats, strict=False))
                    self._num = len(slots)
                    if self._shelf.disk is not None:
                        self._shelf.disk.make_room(wish.loader)
                        self._shelf.disk.open_seats(seats)

    def of(self, slot: Hashable) -> ShelfAccess | None:
        """Return what a slot's worker is given; its next worker gets the same seat."""
        if self._shelf is None or self._wish is None:
            return None
        wish = self._wish
        return ShelfAccess(
            self._shelf, self._seat_of.get(slot), wish.loader, wish.audit, wish.trusted
        )

    def give_back(self) -> None:
        """Free the seats, once their workers have ended."""
        if self._shelf is not None:
            with _lock:
                self._shelf.give_back(list(self._seat_of.values()), self._num)
            self._seat_of.clear()
            self._num = 0
