"""Defines the job: what a worker must know to do a loader's work, as torch tells its own worker.

Source: torch/utils/data/_utils/worker.py `_worker_loop`, 2.13.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from torch.utils.data import _DatasetKind

from stoker.clock import Deadline
from stoker.fast.report import FastWish
from stoker.fingerprint.modes import modes
from stoker.memory.store import WishAway
from stoker.shared_tensors import SharedTensors

OWN_NBYTES = 16  # of a fingerprint


class Job(NamedTuple):
    """Holds what a worker needs of a loader, as it was at `iter()`."""

    dataset_kind: int
    dataset: Any
    auto_collation: bool
    collate_fn: Callable[[Any], Any]
    drop_last: bool
    base_seed: int
    worker_init_fn: Callable[[int], None] | None
    num_chains: int  # 0: the batches are those of a loader without workers
    shared_seed: int | None = None  # of an IterDataPipe
    worker_states: tuple[Any, ...] | None = None  # of a stateful loader: where each chain begins
    may_save: bool = False  # whether a replacement may go on from the iterable's own state
    tells_shapes: bool = False  # with its batches, for the sake of a network
    wish: WishAway | None = None  # of a shelf of remembered samples, on other machines
    make_worker: Callable[..., Any] | None = None  # in place of worker.loop's Worker
    fast: FastWish | None = None  # of libraries' functions, by faster ones
    names_slow: bool = False  # tell which sample and function made a batch slow
    has_slow: bool = False  # some were, in earlier epochs
    shared: SharedTensors | None = None  # where it was pickled; the last: see there

    @property
    def is_iterable(self) -> bool:
        return self.dataset_kind == _DatasetKind.Iterable

    def fingerprint(self, deadline: Deadline, **options: Any) -> bytes:
        """Return the fingerprint of what a batch may depend on, in 16 bytes: of what is this process's
        own. Where shared tensors have changed since iter() more follow, like no others. options: see `fingerprint`.
        Raises Unwatchable."""
        from stoker.fingerprint.fingerprint import fingerprint  # the trainer needs none of it

        own = fingerprint(self.reachable(), deadline, shared=self.shared, **options)
        return own if self.shared is None or self.shared.is_as_it_was else own + os.urandom(8)

    def reachable(self) -> dict[str, object]:
        """Return what a batch may depend on beside its indices and the three global generators."""
        return {
            "dataset": self.dataset,
            "collate_fn": self.collate_fn,
            "surroundings": _moved_surroundings(),
            "torch's modes": modes(),
        }


_surroundings: tuple[dict[str, str], Path] | None = None


def note_surroundings() -> None:
    """Note the environment and folder: from here on a job reaches only what changes in them.

    So that two machines can be compared, whose environments and folders are never the same.
    """
    global _surroundings
    _surroundings = dict(os.environ), Path.cwd()


def _moved_surroundings() -> object:
    environ, folder = dict(os.environ), Path.cwd()
    if _surroundings is None:
        return environ, folder
    before, folder_before = _surroundings
    changed = dict(sorted(environ.items() - before.items()))
    gone = sorted(before.keys() - environ.keys())
    return changed, gone, None if folder == folder_before else folder
