"""Runs imports, and what else makes much that stays, without a garbage collection in the midst.

So many new objects bring about a collection of all that the script has: 0.1 s with torch alone, more
with a dataset that is a list of dictionaries.
Measured: benchmarks/start.py

Promise: collections are on again afterwards if they were on, in a child that is forked meanwhile too.
"""

import contextlib
import gc
import os
from collections.abc import Iterator

_is_paused = False  # by us


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """Collect no garbage inside."""
    global _is_paused
    if not gc.isenabled():
        yield
        return
    gc.disable()
    _is_paused = True
    try:
        yield
    finally:
        _resume()


def _resume() -> None:
    global _is_paused
    if _is_paused:
        _is_paused = False
        gc.enable()


os.register_at_fork(after_in_child=_resume)
