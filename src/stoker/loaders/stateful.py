"""Iterates over a StatefulDataLoader with stoker's workers and torchdata's own bookkeeping.

Promise: batches and `state_dict()` are those of `_StatefulMultiProcessingDataLoaderIter`
(torchdata/stateful_dataloader/stateful_dataloader.py, 0.11), whose __init__ is not run; a state
saved by either is good for the other. When a snapshot is taken is torchdata's rule, restated
here; what a snapshot holds is made by torchdata's own methods, which this class inherits.
Ban: imported only where the script has imported torchdata.
Owner: the thread that iterates.
"""

import collections
import logging
from typing import Any, cast

from torch._utils import ExceptionWrapper
from torch.utils.data import _DatasetKind
from torch.utils.data.dataloader import DataLoader
from torchdata.stateful_dataloader.incremental_state import (
    _DATASET_ITER_STATE,
    _DATASET_STATE,
    _FETCHER_STATE,
    _IncrementalWorkerState,
)
from torchdata.stateful_dataloader.stateful_dataloader import (
    _ITERATOR_FINISHED,
    _SHARED_SEED,
    _StatefulBaseDataLoaderIter,
    _StatefulMultiProcessingDataLoaderIter,
)

from stoker.clock import Deadline
from stoker.loaders.driver import Died, Driver, Told
from stoker.loaders.multiprocess import StreamIterator, StreamOptions, death
from stoker.wire.batch_codec import loads
from stoker.worker.job import Job
from stoker.worker.stateful import StatefulWorker

# As torchdata's: a script that silences or records that logger finds the same lines there.
_logger = logging.getLogger(_StatefulMultiProcessingDataLoaderIter.__module__)


class StatefulIterator(StreamIterator, _StatefulMultiProcessingDataLoaderIter):  # type: ignore[misc]
    """Iterates over a StatefulDataLoader. saved: what its `load_state_dict` was given, or None."""

    _is_stateful = True
    _torchs_init = staticmethod(_StatefulBaseDataLoaderIter.__init__)
    _saved: "_Saved | None" = None  # while it is being loaded

    def __init__(
        self, loader: DataLoader[Any], options: StreamOptions, saved: dict[str, Any] | None
    ) -> None:
        self._state_to_load = saved
        self._snapshot_interval = loader.snapshot_every_n_steps  # type: ignore[attr-defined]
        self._sampler_iter_yielded = 0
        self._finished = False
        self._epoch = 0  # counted from iter(), on living workers
        self._first_id = self._send_idx = self._rcvd_idx = 0  # see _reset
        self._snapshot: dict[str, Any] = {}
        self._main_snapshots: collections.deque[Any] = collections.deque()
        super().__init__(loader, options)
        self._profile_name = "enumerate(DataLoader)#_StatefulMultiProcessingDataLoaderIter.__next__"
        if self._saved is not None:
            self._go_on_from(self._saved)
            self._saved = None  # it may be large

    def _start_driver(self, loader: DataLoader[Any], options: StreamOptions) -> Driver:
        """Parse the saved state: after the base class has drawn its seed, before workers start."""
        state, self._state_to_load = self._state_to_load, None
        if state is not None:
            self._saved = _Saved(state, loader)
            self._first_chain = self._saved.first_chain
        return super()._start_driver(loader, options)

    def _job(self, options: StreamOptions) -> Job:
        states: list[Any] = [None] * options.num_chains
        if self._saved is not None:
            states[: len(self._saved.workers)] = self._saved.workers
            self._base_seed = self._saved.main.get(self._BASE_SEED, self._base_seed)
            self._shared_seed = self._saved.main.get(_SHARED_SEED, self._shared_seed)
        self._worker_snapshots = {
            self._worker_key(chain): _IncrementalWorkerState(state)
            for chain, state in enumerate(states)
        }
        job = super()._job(options)
        return job._replace(
            may_save=False,  # it would have to hold torchdata's books as well
            worker_states=tuple(states),
            make_worker=StatefulWorker,
        )

    # -- torchdata's own protocol --------------------------------------------------------------

    def _reset(self, loader: DataLoader[Any], first_iter: bool = False) -> None:
        self.is_theirs = True
        _StatefulBaseDataLoaderIter._reset(self, loader, first_iter)
        self.is_theirs = False
        if not first_iter:
            self._epoch += 1
            self._driver.restart(self._shared_seed)
        self._learn_how_workers_begin()
        self._first_id += self._send_idx  # task ids go on, torchdata counts from each reset
        self._send_idx = self._rcvd_idx = 0
        self._main_snapshots.clear()
        self._last_yielded_worker_id = self._num_workers - 1
        self._update_snapshot(
            snapshot_step=0,
            last_yielded_worker_id=self._last_yielded_worker_id,
            num_workers=self._num_workers,
            main_snapshot=self._get_main_state(),
            worker_snapshots=self._worker_snapshots,
        )
        if self._saved is None:  # else the sampler is not yet where it was
            self._fill()

    def _next_data(self) -> Any:
        try:
            return super()._next_data()
        except StopIteration:
            self._note_ends(self._first_id + self._send_idx)
            raise

    def _fill(self) -> None:
        """Draw indices on torch's schedule, and keep the sampler's state if a snapshot needs it.

        Source: torchdata's `_try_put_index`, 0.11.
        """
        while self._state.wants_index:
            try:
                indices = self._next_index()  # type: ignore[no-untyped-call]
            except StopIteration:
                return
            except BaseException:
                self._fail_to_draw()
                raise
            main, worker = self._snapshots_due()
            if main:
                self._main_snapshots.append((self._send_idx, self._get_main_state()))
            self._send_idx += 1
            self._driver.draw(indices, worker)

    def _snapshots_due(self) -> tuple[bool, bool]:
        """Whether a snapshot needs the sampler's state of now, and the worker's after this task."""
        interval = self._snapshot_interval
        if not interval:
            return False, False
        if self._dataset_kind == _DatasetKind.Iterable:
            latest = self._num_yielded % interval + 1 + self._num_workers * self._prefetch_factor
            return latest >= interval, latest + self._num_workers >= interval
        num_drawn = self._sampler_iter_yielded
        return num_drawn % interval == 0, (num_drawn - 1) % interval + self._num_workers >= interval

    def _delivered(self, batch: Any) -> Any:
        """Record the state that came with a batch. Source: torchdata's `_process_data`, 0.11."""
        task_id = self._driver.taken_id
        told = self._driver.states.pop(task_id, None)
        self._note_ends(task_id)
        self._rcvd_idx = task_id - self._first_id + 1
        batch = super()._delivered(batch)  # may raise what the dataset did
        if told is not None:
            self._last_yielded_worker_id = told.chain
            self._note(told)
        if self._snapshot_interval and (self._num_yielded + 1) % self._snapshot_interval == 0:
            self._take_snapshot()
        return batch

    # -- ours ----------------------------------------------------------------------------------

    def _learn_how_workers_begin(self) -> None:
        """Wait for the state that each worker begins the epoch with, as torchdata does."""
        deadline = Deadline(self._timeout if self._timeout > 0 else None)
        for chain in range(self._num_workers):
            begun = self._in_time(self._driver.wait_begun(chain, self._epoch, deadline))
            if isinstance(begun, Died):
                why = self._driver.why_torchs(begun)
                self.is_theirs = why is None
                raise why or death(begun, self._state.limits.max_deaths)
            state, is_delta = cast(tuple[Any, bool], loads(begun))
            if isinstance(state, ExceptionWrapper):
                self.is_theirs = True
                state.reraise()
            if is_delta:
                self._worker_snapshots[self._worker_key(chain)].apply_delta(state)
            else:
                self._worker_snapshots[self._worker_key(chain)] = _IncrementalWorkerState(state)
        # Whatever was left of the epoch before has come by now: a worker answers in order.
        self._driver.states.clear()
        self._driver.ends.clear()

    def _note(self, told: Told) -> None:
        if told.state:
            self._update_worker_snapshot(self._worker_key(told.chain), loads(told.state))

    def _note_ends(self, task_id: int) -> None:
        """Record the states of workers whose iterables ended at a task before this one."""
        ends = self._driver.ends
        if ends:
            for _, told in sorted(end for end in ends if end[0] < task_id):
                self._note(told)
            ends[:] = [end for end in ends if end[0] >= task_id]

    def _go_on_from(self, saved: "_Saved") -> None:
        """Resume from a state. Source: the second half of torchdata's __init__, 0.11."""
        self._restore_main_state(saved.main)
        self._num_yielded = saved.num_yielded
        self._update_snapshot(
            snapshot_step=saved.num_yielded,
            last_yielded_worker_id=saved.last_chain,
            num_workers=self._num_workers,
            main_snapshot=saved.main,
            worker_snapshots=self._worker_snapshots,
        )
        if not saved.must_fast_forward:
            self._last_yielded_worker_id = saved.last_chain
        self._fill()
        if saved.must_fast_forward:
            self._fast_forward(saved)
        for _ in range(saved.num_since_snapshot):
            next(self)
        self._finished = saved.is_finished

    def _fast_forward(self, saved: "_Saved") -> None:
        if self._num_yielded > 0:
            _logger.warning(
                f"Neither dataset nor iter(dataset) defines state_dict/load_state_dict so we are "
                f"naively fast-forwarding your dataset by {self._num_yielded} steps. For more "
                f"efficient resumes, please implement `state_dict` and `load_state_dict` in your "
                f"IterableDataset and/or iterator."
            )
            for _ in range(self._num_yielded):
                next(self)
        if self._last_yielded_worker_id != saved.last_chain:
            raise ValueError("last_yielded_worker_id does not match, the dataset may have changed")


class _Saved:
    """Reads from a saved state where to begin. Raises as torchdata does if it is no such state."""

    def __init__(self, state: dict[str, Any], loader: DataLoader[Any]) -> None:
        of = _StatefulMultiProcessingDataLoaderIter
        assert of._SNAPSHOT in state, (
            f"State doesn't contain key '{of._SNAPSHOT}' expected for multiprocess dataloader"
        )
        snapshot = state[of._SNAPSHOT]
        by_key = snapshot.get(of._WORKER_SNAPSHOTS, {})
        # Not sorted by key: worker_10 would come before worker_2.
        keys = [of._worker_key(None, chain) for chain in range(len(by_key))]
        assert set(keys) == set(by_key), (len(by_key), by_key.keys())
        self.workers = [by_key[key] for key in keys]
        self.main: dict[str, Any] = snapshot[of._MAIN_SNAPSHOT]
        self.num_yielded: int = snapshot[of._SNAPSHOT_STEP]
        self.last_chain: int = snapshot[of._LAST_YIELDED_WORKER_ID]
        self.num_since_snapshot: int = state[of._STEPS_SINCE_SNAPSHOT]
        self.is_finished: bool = state[_ITERATOR_FINISHED]
        self.must_fast_forward = loader._dataset_kind == _DatasetKind.Iterable and self._is_bare()
        after = 0 if self.must_fast_forward else self.last_chain + 1
        self.first_chain = after % loader.num_workers

    def _is_bare(self) -> bool:
        """Whether neither iterable nor iterator told a state, by the first worker's snapshot."""
        for worker in self.workers:
            if worker is not None:
                nothing_within: bool = worker[_FETCHER_STATE][_DATASET_ITER_STATE] is None
                return worker[_DATASET_STATE] is None and nothing_within
        return False
