"""Finds which rank of a distributed run this process is, and which ranks run without stoker.

Every armed rank that iterates a loader leaves its name in the process group's own store; rank 0
looks which have. Nothing is waited for, and no collective is used.
Promise: if there is no process group, or its store is gone, nothing is asked and nothing raised.
"""

import sys
from collections.abc import Mapping
from typing import Any

from stoker.clock import now_s

_KEY = "stoker/rank/{}"
PATIENCE_S = 5.0
# Of launchers that tell how many ranks they start on this host: torchrun and accelerate, Open MPI,
# MPICH and Intel MPI, Slurm.
_LOCAL_SIZES = (
    "LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "SLURM_NTASKS_PER_NODE",
)  # fmt: skip


def local_world_size(environ: Mapping[str, str]) -> int:
    """Count the ranks on this host: the launcher's, else the process group's (mp.spawn), or 1."""
    for name in _LOCAL_SIZES:
        if environ.get(name, "").isdecimal():
            return max(1, int(environ[name]))
    return _group()[1]


def local_rank(environ: Mapping[str, str]) -> int:
    """Return this process's number among the ranks of this host."""
    for name in ("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID"):
        if environ.get(name, "").isdecimal():
            return int(environ[name])
    return _group()[0]


def rank_of(environ: Mapping[str, str]) -> int | None:
    """Return this process's rank: by the launcher, else the process group; None without either."""
    if environ.get("RANK", "").isdecimal():
        return int(environ["RANK"])
    rank, world_size = _group()
    return rank if world_size > 1 else None


def _group() -> tuple[int, int]:
    """Return rank and size of the process group; 0 and 1 if there is none."""
    dist: Any = sys.modules.get("torch.distributed")
    if dist is None or not dist.is_available() or not dist.is_initialized():
        return 0, 1
    return int(dist.get_rank()), int(dist.get_world_size())


class Ranks:
    """Tracks which ranks run under stoker. Owner: the thread that iterates."""

    def __init__(self) -> None:
        self._told_s: float | None = None  # when this rank left its name
        self._unseen: list[int] | None = None  # None: rank 0 has not looked yet, or is not here

    @property
    def without_stoker(self) -> list[int]:
        """Ranks that have not been seen; empty if this is not rank 0."""
        return self._unseen or []

    def look(self, at_end: bool = False) -> None:
        """Leave this rank's name in the store; on rank 0, look for the others'.

        Others may begin a little later: none is missing before PATIENCE_S, except at the end.
        """
        rank, world_size = _group()
        if world_size == 1 or self._unseen == [] or (self._told_s is not None and rank != 0):
            return
        try:
            from torch.distributed.distributed_c10d import _get_default_store

            store = _get_default_store()
            if self._told_s is None:
                store.set(_KEY.format(rank), "armed")
                self._told_s = now_s()
            is_late = at_end or now_s() - self._told_s > PATIENCE_S
            if rank == 0:
                self._look(store, range(world_size), is_late)
        except Exception:  # the store is going, with the group or with its host
            return

    def _look(self, store: Any, ranks: range, is_late: bool) -> None:
        if store.check([_KEY.format(rank) for rank in ranks]):
            self._unseen = []
        elif is_late:
            unseen = ranks if self._unseen is None else self._unseen
            self._unseen = [rank for rank in unseen if not store.check([_KEY.format(rank)])]
