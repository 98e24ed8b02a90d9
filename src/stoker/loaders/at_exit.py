"""Ends the workers of iterators that are still open when the interpreter exits.

Owner: the main thread, at exit. Does nothing in a forked copy.
"""

import os
import threading
import weakref
from typing import Protocol

from torch.utils.data import _utils

from stoker.clock import Deadline
from stoker.local.template import wait_all_gone

# torch gives its workers this long to leave (torch/utils/data/_utils/__init__.py).
LEAVE_S = float(_utils.MP_STATUS_CHECK_INTERVAL)
EXIT_GRACE_S = 0.2  # at interpreter exit torch terminates workers at once
GONE_S = 2.0


class OpenIterator(Protocol):
    owner_thread: int  # that iterates

    def _close(self, grace_s: float) -> None: ...


_open: weakref.WeakSet[OpenIterator] = weakref.WeakSet()


def close_at_exit(iterator: OpenIterator) -> None:
    _open.add(iterator)


def forget(iterator: OpenIterator) -> None:
    """Drop an iterator that has been closed."""
    _open.discard(iterator)


def close_all() -> None:
    """Close every open iterator at interpreter exit; intercept/run.py says when that is."""
    for iterator in tuple(_open):
        if iterator.owner_thread == threading.get_ident():  # else its thread may be at work
            iterator._close(EXIT_GRACE_S)
    wait_all_gone(Deadline(GONE_S))


os.register_at_fork(after_in_child=_open.clear)
