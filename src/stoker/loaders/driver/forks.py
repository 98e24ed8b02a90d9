"""A fork of the script's: the child sees what is lent at that moment, and owns nothing of ours.

Promise: memory that a fork can see is not written to while its child lives; a child closes the
sockets that it got, and none of the parent's workers notices.
Owner: the thread that iterates, and for a moment the one that forks.
"""

import os
import weakref
from collections.abc import Callable
from typing import Protocol

from stoker.wire.slabs import ArenaPool, Lender, Witness

pool = ArenaPool()  # arenas of loaders that have ended
also_spare: list[Callable[[], list[Lender]]] = []  # whoever keeps such of another kind


class Watched(Protocol):
    """A driver, as seen from here."""

    @property
    def lenders(self) -> list[Lender]:
        """Of the arenas that its batches lie in."""

    def abandon(self) -> None:
        """Close what a forked child got of it."""


_drivers: weakref.WeakSet[Watched] = weakref.WeakSet()
_forking: list[Witness] = []  # of the fork under way
_witnesses: list[Witness] = []  # of forks whose processes live


def watch(driver: Watched) -> None:
    _drivers.add(driver)


def forget(driver: Watched) -> None:
    """It is closed."""
    _drivers.discard(driver)


def look_at_witnesses() -> None:
    _witnesses[:] = [witness for witness in _witnesses if not witness.is_gone()]


def _lenders() -> list[Lender]:
    active = [lender for driver in tuple(_drivers) for lender in driver.lenders]
    spare = [lender for lenders in also_spare for lender in lenders()]
    return [lender for lender in (*active, *pool, *spare) if lender.lent_nbytes]


def _before_fork() -> None:
    look_at_witnesses()
    if _lenders():
        _forking.append(Witness())


def _after_fork_in_parent() -> None:
    while _forking:
        witness = _forking.pop()
        witness.in_parent()
        _witnesses.append(witness)
        for lender in _lenders():
            lender.witness(witness)


def _after_fork_in_child() -> None:
    for witness in (*_forking, *_witnesses):
        witness.in_child()
    _forking.clear()
    _witnesses.clear()
    for driver in tuple(_drivers):
        driver.abandon()
    _drivers.clear()
    pool.clear()


os.register_at_fork(
    before=_before_fork,
    after_in_parent=_after_fork_in_parent,
    after_in_child=_after_fork_in_child,
)
