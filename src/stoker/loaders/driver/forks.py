"""Handles the script's own forks: keeps memory that a child sees, closes the child's sockets.

Promise: memory that is lent at a fork is not written to while the child lives; a child closes the
sockets that it got, and none of the parent's workers notices.
Owner: the thread that iterates, and for a moment the one that forks.
"""

import os
import weakref
from collections.abc import Callable
from typing import Protocol

from stoker.wire.arena import ArenaPool, ForkedChild, Lender

pool = ArenaPool()  # arenas of loaders that have ended
also_spare: list[Callable[[], list[Lender]]] = []  # whoever keeps such of another kind


class Owner(Protocol):
    """The part of a driver that a fork concerns."""

    @property
    def lenders(self) -> list[Lender]:
        """Lenders of the arenas that its batches lie in."""

    def abandon(self) -> None:
        """Close what a forked child inherited of it."""


_drivers: weakref.WeakSet[Owner] = weakref.WeakSet()
_forking: list[ForkedChild] = []  # of the fork under way
_children: list[ForkedChild] = []  # of forks whose processes live


def watch(driver: Owner) -> None:
    _drivers.add(driver)


def forget(driver: Owner) -> None:
    """Drop a driver that has been closed."""
    _drivers.discard(driver)


def forget_dead_children() -> None:
    _children[:] = [child for child in _children if not child.is_gone()]


def _lenders() -> list[Lender]:
    active = [lender for driver in tuple(_drivers) for lender in driver.lenders]
    spare = [lender for lenders in also_spare for lender in lenders()]
    return [lender for lender in (*active, *pool, *spare) if lender.lent_nbytes]


def _before_fork() -> None:
    forget_dead_children()
    if _lenders():
        _forking.append(ForkedChild())


def _after_fork_in_parent() -> None:
    while _forking:
        child = _forking.pop()
        child.in_parent()
        _children.append(child)
        for lender in _lenders():
            lender.seen_by(child)


def _after_fork_in_child() -> None:
    for child in (*_forking, *_children):
        child.in_child()
    _forking.clear()
    _children.clear()
    for driver in tuple(_drivers):
        driver.abandon()
    _drivers.clear()
    pool.clear()


os.register_at_fork(
    before=_before_fork,
    after_in_parent=_after_fork_in_parent,
    after_in_child=_after_fork_in_child,
)
