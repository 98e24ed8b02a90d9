"""Runs one side of `stoker verify` in the script's processes: seeds, records batches, ends them.

Promise: beside the seeds nothing that the script computes changes; a batch is recorded before
the script is ended, by a SystemExit out of the `next()` that would have given it.
Ban: imports neither torch nor numpy (what was never imported draws nothing).
"""

import json
import os
import pickle
import random
import sys
import threading
from collections.abc import Callable
from hashlib import blake2b
from pathlib import Path
from typing import Any

from stoker.clock import Deadline, now_s
from stoker.reports.digest import batch_sha256
from stoker.reports.metrics import LoaderRecord
from stoker.tables import counted
from stoker.verify.record import SEED, STOPS, Finding, Plan, plan_of

ENOUGH_ALONE = (
    4  # times the batches asked for: then a loader that was only peeked at holds nothing up
)
SCAN_S = 1.0  # for reading the code behind one loader; what is not read by then names no reason

_plan = plan_of(os.environ)
_side: "_Side | None" = None
_lock = threading.Lock()  # guards the making of _side


def is_on() -> bool:
    return _plan is not None


def seed_python() -> None:
    random.seed(SEED)


def seed_numpy() -> None:
    """Seed NumPy, right after `numpy.random` was imported."""
    sys.modules["numpy.random"].seed(SEED)


def seed_torch() -> None:
    """Seed torch, right after `torch.utils.data` was imported; torch's own import has not ended."""
    torch = sys.modules["torch"]
    try:
        torch.manual_seed(SEED)
    except Exception:  # an accelerator's part that is not there yet
        torch.default_generator.manual_seed(SEED)


def follow(
    loader: Any, record: LoaderRecord, looks: tuple[object, ...], left: Callable[[], list[str]]
) -> "Trail | None":
    """Return a trail for a new iterator of the loader; None if nothing is recorded.

    left: gives what is left to torch because of its version, in words.

    Nothing is recorded inside a loader's worker: how many of those there are is not the script's
    to see.
    """
    if _plan is None or sys.modules["torch.utils.data"].get_worker_info() is not None:
        return None
    global _side
    with _lock:
        if _side is None:
            _side = _Side(_plan, left())
    return Trail(_side, _side.loader(loader, record, looks))


class Trail:
    """The trail of one iterator; several iterators of a loader share its count."""

    def __init__(self, side: "_Side", loader: "_Loader") -> None:
        self._side = side
        self._loader = loader
        self._epoch = 0

    def begin_epoch(self) -> None:
        """Note that `iter()` was called; a persistent iterator lives through several epochs."""
        self._loader.num_epochs += 1
        self._epoch = self._loader.num_epochs

    def delivered(self, sha256: str) -> None:
        """Record a batch. Raises SystemExit when the side has seen enough."""
        self._side.delivered(self._loader, self._epoch, sha256)


class _Loader:
    """A line of the script at which loaders that look alike are iterated."""

    def __init__(self, number: int, record: LoaderRecord, looks: tuple[object, ...]) -> None:
        self.number = number
        self.record = record
        self.looks = looks
        self.num_epochs = 0
        self.told_offload = ""

    @property
    def offload(self) -> str:
        """Whether and how it is offloaded now; without workers decided after some batches."""
        if not self.record.offloaded:
            return f"no: {self.record.reasons[0]}"
        chains = self.record.chains
        return f"yes, {counted(chains, 'worker')}" if chains else "yes, other cores"


class _Side:
    """The record of one process: JSON lines in a file of its own."""

    def __init__(self, plan: Plan, left: list[str]) -> None:
        self._plan = plan
        self._pid = os.getpid()
        self._lock = threading.Lock()  # guards _loaders and the order of lines
        self._loaders: dict[tuple[object, ...], _Loader] = {}
        self._nums_batches: dict[tuple[object, ...], int] = {}  # by looks, wherever it is iterated
        self._is_stopped = False
        began_s = now_s()
        file = Path(plan.folder, f"{began_s:.6f}-{self._pid}.jsonl")
        self._fd = os.open(file, os.O_CREAT | os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._put(
            "process",
            rank=os.environ.get("RANK", ""),
            argv=sys.argv,
            name=_name_of_process(),
            began_s=began_s,
            left=left,
        )

    def loader(self, loader: Any, record: LoaderRecord, looks: tuple[object, ...]) -> _Loader:
        """Return the loader with this place and looks; its code is scanned the first time."""
        key = (record.place, *looks)
        with self._lock:
            if key not in self._loaders:
                self._loaders[key] = _Loader(len(self._loaders), record, looks)
                self._nums_batches.setdefault(looks, 0)
                findings = _findings(loader)
                self._put("loader", place=record.place, looks=looks, findings=findings)
            return self._loaders[key]

    def delivered(self, loader: _Loader, epoch: int, sha256: str) -> None:
        if os.getpid() != self._pid:  # a fork of the script's iterates what it inherited
            return
        with self._lock:
            if not self._is_stopped:
                self._nums_batches[loader.looks] += 1
                if loader.offload != loader.told_offload:
                    loader.told_offload = loader.offload
                    self._put("offload", loader=loader.number, text=loader.offload)
                self._put(
                    "batch",
                    loader=loader.number,
                    epoch=epoch,
                    sha256=sha256,
                    generators=generators(),
                )
                self._stop_if_enough()
        if self._is_stopped:
            raise SystemExit(0)

    def _stop_if_enough(self) -> None:
        nums, enough = self._nums_batches.values(), self._plan.num_batches
        if min(nums) >= enough or max(nums) >= ENOUGH_ALONE * enough:
            self._stop("count")
        elif now_s() >= self._plan.until_s:
            self._stop("limit")

    def _stop(self, why: str) -> None:
        self._is_stopped = True
        self._put("stop", why=why)
        try:
            pipe = os.open(Path(self._plan.folder, STOPS), os.O_WRONLY | os.O_NONBLOCK)
        except OSError:  # `stoker verify` was killed: this process ends all the same
            return
        os.write(pipe, b"%d\n" % self._pid)
        os.close(pipe)

    def _put(self, kind: str, **values: Any) -> None:
        os.write(self._fd, json.dumps({"kind": kind, **values}, default=str).encode() + b"\n")


def generators() -> dict[str, str]:
    """Return a digest of each global random generator that this process has."""
    digests = {"random": _digest(pickle.dumps(random.getstate(), 5))}
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is not None:
        digests["numpy"] = _digest(pickle.dumps(numpy_random.get_state(legacy=False), 5))
    torch = sys.modules["torch"]
    digests["torch"] = batch_sha256(torch.default_generator.get_state())[:16]
    return digests


def _digest(state: bytes) -> str:
    return blake2b(state, digest_size=8).hexdigest()


def _findings(loader: Any) -> list[Finding]:
    from stoker.verify.suspects import scan

    roots = {
        name: getattr(loader, name, None)
        for name in ("dataset", "collate_fn", "worker_init_fn", "sampler", "batch_sampler")
    }
    try:
        return list(scan(roots, sys._getframe(1), Deadline(SCAN_S)))
    except Exception:  # strange objects; without a reason the verdict is still a verdict
        return []


def _name_of_process() -> str:
    process = sys.modules.get("multiprocessing.process")
    return process.current_process().name if process is not None else "MainProcess"


def _after_fork_in_child() -> None:
    global _side, _lock
    _side, _lock = None, threading.Lock()  # another thread of the parent may have held it


if is_on():
    os.register_at_fork(after_in_child=_after_fork_in_child)
