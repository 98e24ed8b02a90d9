"""Replaces torch's multi-process iterator by a subclass of it, whose workers are stoker's.

Promise: batches, their order, the trainer's generators, the moments at which the sampler is
asked, errors and their texts are those of `_MultiProcessingDataLoaderIter`
(torch/utils/data/dataloader.py, 2.13), whose __init__ is not run.
Owner: the thread that iterates.
"""

import concurrent.futures
import contextlib
import functools
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import torch
from torch._utils import ExceptionWrapper
from torch.utils.data import IterDataPipe, MapDataPipe, _DatasetKind, _utils
from torch.utils.data.dataloader import (
    DataLoader,
    _BaseDataLoaderIter,
    _MultiProcessingDataLoaderIter,
    _sharding_worker_init_fn,
)

from stoker import at_fork, stack
from stoker.clock import Deadline
from stoker.fast.report import FastWish
from stoker.loaders.at_exit import LEAVE_S, close_at_exit, forget
from stoker.loaders.driver import ENDED, TIMED_OUT, Died, Driver, Failed
from stoker.memory.store import Wish
from stoker.scheduler.decider import Stream
from stoker.scheduler.tasks.plan import may_run_ahead
from stoker.shared_tensors import SharedTensors
from stoker.storage.asking.upcoming import SamplerAhead, Teller, teller
from stoker.trusted import looked_for_children
from stoker.wire.batch_codec import loads
from stoker.worker.job import Job

if TYPE_CHECKING:
    from stoker.remote.trainer.fleet import Fleet

# Source: torch/utils/data/dataloader.py `DataLoader.__init__`, 2.13
DEFAULT_PREFETCH = 2


class WorkerHandle:
    """Replaces torch's `_workers[i]`, as far as public code reads it: the slot's latest process."""

    def __init__(self, driver: Driver, slot: int, name: str) -> None:
        self._driver = driver
        self._slot = slot
        self.name = name
        self.daemon = True

    @property
    def pid(self) -> int | None:
        """The pid that the dataset sees in that worker."""
        return self._driver.wait_pid(self._slot)

    @property
    def exitcode(self) -> int | None:
        how = self._driver.wait_exit(self._slot, Deadline(0))
        return None if how is None else how.code

    def is_alive(self) -> bool:
        return self.exitcode is None

    def join(self, timeout: float | None = None) -> None:
        self._driver.wait_exit(self._slot, Deadline(timeout))

    def terminate(self) -> None:
        self._driver.signal(self._slot, signal.SIGTERM)

    def kill(self) -> None:
        self._driver.signal(self._slot, signal.SIGKILL)


class _Results:
    """Replaces torch's `_data_queue`, as far as public code reads it."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver

    def qsize(self) -> int:
        self._driver.receive_ready()
        return self._driver.state.reorder.num_held


class StreamOptions(NamedTuple):
    """The run's settings, resolved for one loader."""

    num_chains: int
    num_slots: int
    arena_nbytes: int  # address space of one worker's arena
    held_limit_nbytes: int
    fleet: "Fleet | None" = None  # other machines
    may_hedge: bool = False  # ask a second worker for a batch that is late
    wish: Wish | None = None  # of the shelf of remembered samples
    fast: FastWish | None = None  # of libraries' functions, by faster ones
    names_slow: bool = False  # tell which sample and function made a batch slow
    has_slow: bool = False  # some were, in earlier epochs
    say: Callable[[str], None] | None = None  # tells the user


class StreamIterator(_MultiProcessingDataLoaderIter):
    """Iterates over one loader's batches, made by chains in processes of their own."""

    _is_stateful = False
    _torchs_init: Any = staticmethod(_MultiProcessingDataLoaderIter.__init__)  # ours instead of it
    _first_chain = 0
    _drawn: list[Any] | None = None  # index lists, until the first batch has left; see fallback.py
    _workers_seed: int | None = None
    _teller: Teller | None = None
    _pinner: "_Pinner | None" = None
    # Whether what is raised is torch's error or the script's, and not stoker's: so while their code
    # runs, where one is passed on, and once a batch has left, for then torch cannot begin again.
    is_theirs = False

    def __init__(self, loader: DataLoader[Any], options: "StreamOptions") -> None:
        as_torchs = stack.standing_at(self._torchs_init, "super")
        self.is_theirs = True
        as_torchs(_BaseDataLoaderIter.__init__, self, loader)
        self.is_theirs = False
        self._profile_name = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
        self._shutdown = False
        self._prefetch_factor = loader.prefetch_factor or DEFAULT_PREFETCH  # None: no workers
        self._in_order = getattr(loader, "in_order", True)
        self._worker_init_fn = loader.worker_init_fn
        if isinstance(self._dataset, (IterDataPipe, MapDataPipe)):
            self._worker_init_fn = functools.partial(
                _sharding_worker_init_fn, self._worker_init_fn, self._world_size, self._rank
            )
        self._num_workers = options.num_chains
        self.owner_thread = threading.get_ident()
        multiprocessing.get_start_method()  # as torch does: fixes the default context
        self._workers_seed = self._shared_seed  # of a DataPipe; the trainer draws another in _reset
        self._driver = self._start_driver(loader, options)
        self._workers = [
            WorkerHandle(self._driver, slot, self._driver.names[slot])  # type: ignore[misc]
            for slot in range(self._num_workers)
        ]
        self._data_queue = _Results(self._driver)  # type: ignore[assignment]
        if self._pin_memory:
            self._pinner = _Pinner(self._pin_memory_device)
        self._driver.prepare_each(self._pinner)
        close_at_exit(self)
        self._reset(loader, first_iter=True)

    def _start_driver(self, loader: DataLoader[Any], options: "StreamOptions") -> Driver:
        context: Any = loader.multiprocessing_context or multiprocessing.get_context()
        # The default context's processes have names of their own.
        new = (loader.multiprocessing_context or multiprocessing).Process
        is_forked = context.get_start_method() == "fork"
        may_be_free = (
            (options.num_slots > options.num_chains or options.fleet is not None)
            and self._worker_init_fn is None
            and self._in_order
            and may_run_ahead(self._index_sampler)
        )
        num_slots = max(options.num_slots, options.num_chains) if may_be_free else 0
        job = self._job(options)._replace(shared=None if is_forked else SharedTensors())
        self._state = state = Stream(
            num_chains=options.num_chains,
            prefetch_factor=self._prefetch_factor,
            in_order=self._in_order,
            num_slots=max(num_slots, options.num_chains),
            may_be_free=may_be_free,
            is_iterable=self._dataset_kind == _DatasetKind.Iterable,
            is_stateful=self._is_stateful,
            first_chain=self._first_chain,
            persistent=self._persistent_workers,
            may_hedge=options.may_hedge,
        )
        are_to_look = (
            is_forked
            and options.wish is not None
            and not at_fork.has_functions_of_the_scripts()  # they run in between
        )
        with looked_for_children() if are_to_look else contextlib.nullcontext():
            return Driver(
                state,
                job,
                context,
                arena_nbytes=options.arena_nbytes,
                held_limit_nbytes=options.held_limit_nbytes,
                processes=[new(daemon=True) for _ in range(state.num_chains)],
                fleet=options.fleet,
                user=loader,
                wish=options.wish,
                say=options.say,
            )

    def _job(self, options: "StreamOptions") -> Job:
        return Job(
            dataset_kind=self._dataset_kind,
            dataset=self._dataset,
            auto_collation=self._auto_collation,
            collate_fn=self._collate_fn,
            drop_last=self._drop_last,
            base_seed=int(self._base_seed),
            worker_init_fn=self._worker_init_fn,
            num_chains=options.num_chains,
            shared_seed=self._shared_seed,
            # Its next epoch would begin from what was loaded, not from its start.
            may_save=not self._persistent_workers,
            wish=options.wish and options.wish.away,
            fast=options.fast,
            names_slow=options.names_slow,
            has_slow=options.has_slow,
        )

    # -- torch's own protocol ----------------------------------------------------------------

    def _reset(self, loader: DataLoader[Any], first_iter: bool = False) -> None:
        self.is_theirs = True
        _BaseDataLoaderIter._reset(self, loader, first_iter)
        self.is_theirs = False
        if not self._is_stateful and may_run_ahead(self._index_sampler):
            self._tell_ahead()
        self._drawn = [] if first_iter else None
        if not first_iter:
            self._driver.restart(self._shared_seed)
        self._fill()

    def _tell_ahead(self) -> None:
        """Where the run has mounts, tell which files the epoch will ask for."""
        if self._teller is None:
            self._teller = teller()
        if self._teller is not None:
            self._sampler_iter = SamplerAhead(self._sampler_iter, self._teller, self._dataset)

    def _next_data(self) -> Any:
        self.owner_thread = threading.get_ident()
        batch = ENDED
        while batch is ENDED:  # a chain's iterable has ended: the others may be sent more
            if self._shutdown or self._state.is_exhausted:
                if not self._persistent_workers:
                    self._shutdown_workers()
                raise StopIteration
            batch = self._wait_batch()
            self._fill()
        batch = self._delivered(batch)
        self._drawn, self.is_theirs = None, True
        return batch

    def _shutdown_workers(self) -> None:
        """End the workers; see `Driver.close`. Not at interpreter exit: at_exit.py does it."""
        if self._shutdown or _utils is None or _utils.python_exit_status is not False:
            return
        self._close(LEAVE_S)

    def __del__(self) -> None:
        try:
            if "_driver" in self.__dict__:
                self._shutdown_workers()
        except Exception:  # Python would print it; workers that are left end with the trainer
            return

    # -- ours --------------------------------------------------------------------------------

    def _close(self, grace_s: float) -> None:
        self._shutdown = True
        forget(self)
        if self._pinner is not None:
            self._pinner.close()
        if self._teller is not None:
            self._teller.close()
        self._driver.close(grace_s)

    def _fill(self) -> None:
        """Draw indices on torch's schedule: up to the window at first, then one per batch."""
        while self._state.wants_index:
            try:
                indices = self._next_index()  # type: ignore[no-untyped-call]
            except StopIteration:
                return
            except BaseException:
                self._fail_to_draw()
                raise
            if self._drawn is not None:
                self._drawn.append(indices)
            self._driver.draw(indices)

    def _fail_to_draw(self) -> None:
        """Note an error of the sampler's; torch asks again only for the next batch."""
        self.is_theirs = True
        self._state.num_dropped += 1

    def _wait_batch(self) -> Any:
        deadline = Deadline(self._timeout if self._timeout > 0 else None)
        return self._in_time(self._driver.wait_next(deadline))

    def _in_time(self, waited_for: Any) -> Any:
        if waited_for is TIMED_OUT:
            self.is_theirs = True
            raise RuntimeError(f"DataLoader timed out after {self._timeout} seconds")
        return waited_for

    def _delivered(self, batch: Any) -> Any:
        kind = type(batch)  # not isinstance: it asks a batch of the script's for its __class__
        if kind is _Pinning:
            batch = batch.future.result()
            if type(batch) is ExceptionWrapper:
                self.is_theirs = True
                batch.reraise()
        elif kind is Failed:
            self.is_theirs = True
            _reraise(batch)
        elif kind is Died:
            error = death(batch, self._state.limits.max_deaths)
            if self._drawn is not None and (why := self._driver.why_torchs(batch)):
                raise why from error
            self.is_theirs = True
            raise error
        return batch


class _Pinning(NamedTuple):
    """Replaces a batch while a thread copies it to pinned memory."""

    future: "concurrent.futures.Future[Any]"


class _Pinner:
    """Copies batches that came early into torch's pinned memory, on a thread of its own."""

    def __init__(self, device: str | None) -> None:
        self._device = device
        self._index = torch.accelerator.current_device_index()
        self._pool = concurrent.futures.ThreadPoolExecutor(
            1, "pt_data_pin", functools.partial(_set_up_pinning, self._index)
        )

    def __call__(self, batch: Any) -> _Pinning:
        return _Pinning(self._pool.submit(self._pin, batch))

    def _pin(self, batch: Any) -> Any:
        try:
            return _utils.pin_memory.pin_memory(batch, self._device)
        except Exception:
            return ExceptionWrapper(where=f"in pin memory thread for device {self._index}")

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)


def _set_up_pinning(device_index: int) -> None:
    torch.set_num_threads(1)  # thread local: the copies shall not take every core
    torch.accelerator.set_device_index(device_index)


def _reraise(failed: Failed) -> NoReturn:
    """Raise the dataset's own error, with the worker's traceback and the samples at fault."""
    try:
        failed.wrapper.reraise()
    except Exception as error:
        samples = f", samples {_first_few(loads(failed.body))}" if failed.body else ""
        where = f" on {failed.node}" if failed.node else ""
        error.add_note(f"stoker: {failed.slot}{where}, batch {failed.task_id}{samples}")
        if failed.node and isinstance(error, FileNotFoundError) and _is_file(error.filename):
            error.add_note(
                f"stoker: {error.filename} exists on this machine; {failed.node} lacks it"
            )
        raise
    raise AssertionError("reraise returned")


def _is_file(name: object) -> bool:
    return isinstance(name, (str, bytes)) and os.path.exists(name)  # noqa: PTH110  # may be bytes


def death(died: Died, max_deaths: int) -> RuntimeError:
    """Return torch's error for a dead worker (torch/csrc/DataLoader.cpp, 2.13), and the samples."""
    how = died.how
    if isinstance(how, str):
        return RuntimeError(f"DataLoader worker exited unexpectedly: {how}")
    if how.code < 0:
        text = f"DataLoader worker (pid {how.pid}) is killed by signal: {_signal_name(-how.code)}. "
        if -how.code == signal.SIGBUS:
            text += (
                "It is possible that dataloader's workers are out of shared memory. "
                "Please try to raise your shared memory limit."
            )
    else:
        text = (
            f"DataLoader worker (pid {how.pid}) exited unexpectedly with exit code {how.code}. "
            "Details are lost due to multiprocessing. Rerunning with num_workers=0 may give "
            "better error trace."
        )
    error = RuntimeError(text)
    what = f"samples {_first_few(loads(died.body))} were" if died.body else "one batch was"
    at, num = ("due", died.num_in_vain) if died.num_in_vain else ("made", max_deaths)
    vain = " before it gave any batch" if died.num_in_vain else ""
    times = f"{num} times{vain}; it was started afresh each time"
    error.add_note(f"stoker: {how.slot} died while {what} {at}, {times}")
    return error


def _signal_name(signum: int) -> str:
    return signal.strsignal(signum) or f"signal {signum}"


def _first_few(indices: Any, limit: int = 16) -> str:
    if isinstance(indices, (list, tuple)) and len(indices) > limit:
        return f"{list(indices[:limit])} and {len(indices) - limit} more"
    return repr(indices)
