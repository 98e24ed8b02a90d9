"""A worker that reports the state of its dataset: when an epoch begins, and after a task.

Promise: what it reports is what torchdata's own worker would have reported, differences included,
for torchdata's own functions make it; a replacement that does the same tasks again reports the
same.
Source: torchdata/stateful_dataloader/worker.py `_worker_loop`, 0.11.
Ban: imported only where the script has imported torchdata.
"""

from typing import Any

from torch._utils import ExceptionWrapper
from torchdata.stateful_dataloader.incremental_state import (
    _DATASET_ITER_STATE,
    _DATASET_STATE,
    _FETCHER_STATE,
    _IncrementalWorkerState,
)
from torchdata.stateful_dataloader.stateful import Stateful
from torchdata.stateful_dataloader.worker import _make_state_dict, try_to_deserialize

from stoker.scheduler.tasks.point import Point, SavedPoint
from stoker.wire.arena import Room
from stoker.wire.batch_codec import dumps
from stoker.wire.channel import Channel, Frame
from stoker.wire.frame import Kind, pack
from stoker.wire.sections import Section, pack_section
from stoker.worker.job import Job
from stoker.worker.loop import ENDED, Worker


class StatefulWorker(Worker):
    """Runs the tasks of one chain of a StatefulDataLoader."""

    def __init__(self, job: Job, chain: int, channel: Channel, room: Room | None) -> None:
        super().__init__(job, chain, channel, room)
        assert job.worker_states is not None
        self._saved = job.worker_states[chain]
        self._number = chain
        self._epoch = 0
        self._incremental: Any = None  # what the trainer has been told
        self._begins: tuple[Any, bool] = (None, False)  # state, whether it is a difference
        self._has_state = True  # else nothing that it could tell ever differs
        self._told = b""  # with the next answer

    # -- life ----------------------------------------------------------------------------------

    def _open(self) -> None:
        """Restore, always in this order: dataset's state, its iterator, iterator's state."""
        saved, self._saved = self._saved, None
        if saved is None:
            super()._open()
            state = self._state()
            self._incremental = _IncrementalWorkerState(state)
            self._begins = state, False
        else:
            self._incremental = _IncrementalWorkerState(saved)
            if saved[_DATASET_STATE] is not None:
                try_to_deserialize(self._job.dataset, saved[_DATASET_STATE])
            super()._open()
            if saved[_FETCHER_STATE] is not None and self._job.is_iterable:
                self._restore_iterator(saved[_FETCHER_STATE][_DATASET_ITER_STATE])
            self._begins = self._incremental.generate_delta(self._state()), True
        self._has_state = self._job.is_iterable or isinstance(self._job.dataset, Stateful)

    def _restore_iterator(self, state: Any) -> None:
        fetcher = self._fetcher
        if state is not None:
            fetcher.dataset_iter = try_to_deserialize(fetcher.dataset_iter, state)
        fetcher.ended = False  # it is asked once more even where it is known to have ended

    def _begin(self, frame: Frame) -> None:
        super()._begin(frame)
        self._tell_beginning()

    def _resume(self, seed: int | None) -> None:
        super()._resume(seed)
        self._epoch += 1
        self._tell_beginning()

    def _tell_beginning(self) -> None:
        failure = self._init_failure
        begins = self._begins if failure is None else (failure, False)
        self._begins = None, False
        try:
            told = dumps(begins)
        except Exception:  # torchdata would print this and wait for ever
            told = dumps((self._caught(), False))
        extra = pack_section(Section.STATE, told)
        self._channel.send(pack(Kind.STATE, task_id=self._epoch, extra_nbytes=len(extra)), extra)

    # -- tasks ---------------------------------------------------------------------------------

    def _fetch(self, indices: object, wants_state: bool = False) -> Any:
        batch = super()._fetch(indices)
        self._told = b""
        if isinstance(batch, ExceptionWrapper) or not self._has_state:
            return batch
        if wants_state or batch is ENDED:
            try:
                self._told = dumps(self._incremental.generate_delta(self._state()))
            except Exception:
                return self._caught()
        return batch

    def _state(self) -> dict[str, Any]:
        job = self._job
        state: dict[str, Any] = _make_state_dict(
            self._number, job.dataset_kind, self._fetcher, job.dataset
        )
        return state

    def _after_task(self, task_id: int, task_s: float, must_watch: bool) -> Point | None:
        """Return no point if there is a state: what was told of it cannot be looked into."""
        if self._has_state:
            self._task_s = task_s
            return None
        return super()._after_task(task_id, task_s, must_watch)

    def _extra(self, point: Point | SavedPoint | None) -> bytes:
        if not self._told:
            return super()._extra(point)
        return self._news() + pack_section(Section.STATE, self._told)
