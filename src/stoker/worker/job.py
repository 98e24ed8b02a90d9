"""What a worker must know to do a loader's work: torch's arguments to its own worker.

Source: torch/utils/data/_utils/worker.py `_worker_loop`, 2.13.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch.utils.data import _DatasetKind


@dataclass(frozen=True, slots=True)
class Job:
    """One loader, as it was at `iter()`."""

    dataset_kind: int
    dataset: Any
    auto_collation: bool
    collate_fn: Callable[[Any], Any]
    drop_last: bool
    base_seed: int
    worker_init_fn: Callable[[int], None] | None
    num_chains: int
    shared_seed: int | None = None  # of an IterDataPipe

    @property
    def is_iterable(self) -> bool:
        return self.dataset_kind == _DatasetKind.Iterable


@dataclass(frozen=True, slots=True)
class Point:
    """Where a chain can be taken up again: after `task_id`, with these generators.

    Good for any process whose dataset has the same `fingerprint`.
    """

    task_id: int
    generators: bytes
    fingerprint: bytes
    drew: bool  # whether the chain has drawn from a global generator since it was seeded
    task_s: float  # mean time of a task so far
    watch_s: float  # CPU time that the fingerprint took
