"""Tests under another start method than fork: this Python's own from 3.14 on, else by --start-method.

There a dataset is pickled. Many tests have classes and functions of their own inside; these travel by
value here, for torch and stoker alike, so that what is tested is how workers start.
"""

import contextlib
import io
import multiprocessing
import os
import sys
from collections import ChainMap
from collections.abc import Iterator
from multiprocessing import forkserver, resource_sharer, resource_tracker
from multiprocessing.reduction import ForkingPickler
from types import FunctionType
from typing import Any, ClassVar

import cloudpickle

LOADED = ["torch", "torchvision", "stoker.worker.main", "stoker.local.started", "tests.equality.cases", "tests.equality.stateful", "tests.equality.impure"]  # fmt: skip
_kept: list[Any] = []


@contextlib.contextmanager
def helpers(*preloaded: str) -> Iterator[None]:
    """Processes and threads that multiprocessing starts once and keeps: not what a test leaves behind.
    preloaded: modules that the fork server has, so that its processes start at once."""
    if multiprocessing.get_start_method() != "fork":  # they run already
        yield
        return
    resource_tracker.ensure_running()
    forkserver.set_forkserver_preload([*preloaded] or ["__main__"])
    forkserver.ensure_running()
    value = multiprocessing.Value("i", 0)  # its file is kept for all others
    yield
    del value
    forkserver._forkserver._stop()
    resource_sharer.stop()
    resource_tracker._resource_tracker._stop()


def use(method: str | None) -> None:
    """Make a method the default. None: this Python's own."""
    if method is not None:
        multiprocessing.set_start_method(method, force=True)
    _kept.append(multiprocessing.Value("i", 0))  # its file is kept for all others
    if multiprocessing.get_start_method() == "fork":
        return
    os.environ.setdefault("PYTHONHASHSEED", "1")  # as `stoker run --cluster` sets one
    ForkingPickler.reducer_override = _by_value  # type: ignore[attr-defined]
    resource_tracker.ensure_running()
    forkserver.set_forkserver_preload(LOADED)
    forkserver.ensure_running()  # before a test could be told to have left it behind


class _Pickler(cloudpickle.Pickler):
    """By value, but what multiprocessing shares stays shared."""

    dispatch_table: ClassVar = ChainMap(
        ForkingPickler._extra_reducers, cloudpickle.Pickler.dispatch_table
    )  # type: ignore[attr-defined]


def _by_value(self: Any, value: Any) -> Any:
    if not isinstance(value, (type, FunctionType)) or _can_be_imported(value):
        return NotImplemented
    file = io.BytesIO()
    _Pickler(file).dump(value)
    return cloudpickle.loads, (file.getvalue(),)


def _can_be_imported(value: Any) -> bool:
    found: Any = sys.modules.get(value.__module__)
    for name in value.__qualname__.split("."):
        found = getattr(found, name, None)
    return found is value
