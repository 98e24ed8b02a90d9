"""Workers that are started by spawn or forkserver: the same batches, from the same memory."""

import contextlib
import multiprocessing
import os
import signal
import time
import warnings
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, get_worker_info

from stoker.config import Disk, Settings
from stoker.memory.store import shelves
from tests import methods
from tests.equality import impure
from tests.equality.cases import draw_all, step
from tests.equality.shards import SHARDS, Shards
from tests.equality.sides import both, installed

METHODS = ["spawn", "forkserver"]


@pytest.fixture(scope="module", autouse=True)
def helpers_of_multiprocessing() -> Iterator[None]:
    """Processes and threads that multiprocessing starts once and keeps."""
    with methods.helpers():
        yield


class Plain(Dataset):
    """Depends on all that a worker has: seeds, its own generator, counters, the dataset's values."""

    def __init__(self, num_samples: int = 16, size: int = 3) -> None:
        self.num_samples, self.size = num_samples, size
        self.scale, self.num_given = 1.0, 0
        self.own = np.random.default_rng(5)
        self.parent_pid = os.getpid()

    def __len__(self) -> int:
        return self.num_samples

    def __getitem__(self, index: int) -> Any:
        self.num_given += 1
        info = get_worker_info()
        process = multiprocessing.current_process()
        drawn = torch.tensor(draw_all(self))
        x = torch.full((self.size,), index * self.scale)
        who = (info.id, info.num_workers, process.daemon, process.name.partition("-")[0])
        return (
            x,
            drawn,
            self.num_given,
            who,
            multiprocessing.parent_process().pid == self.parent_pid,
        )


def make(num_workers: int, method: str, dataset: Any = None, **how: Any) -> DataLoader:
    return DataLoader(
        Plain() if dataset is None else dataset,
        **({"batch_size": 3, "shuffle": True} | how),
        num_workers=num_workers,
        multiprocessing_context=method,
    )


def epochs(loader: DataLoader, num: int = 2) -> Iterator[Any]:
    for _ in range(num):
        for batch in loader:
            yield batch
            step()
        loader.dataset.scale = 7.0  # workers that live on do not see it


@pytest.mark.few(1)
@pytest.mark.parametrize(("method", "persistent"), [("spawn", True), ("forkserver", False)])
def test_batches_and_trainer_randomness_are_those_of_torch(method, persistent):
    both(partial(make, method=method, persistent_workers=persistent), epochs)


def test_large_batches_from_memory_that_goes_from_worker_to_worker():
    def made(num_workers):
        return make(num_workers, "spawn", Plain(24, 1 << 20), persistent_workers=True)

    both(made, epochs)


def test_iterables():
    def made(num_workers):
        dataset = Shards(SHARDS["uneven"], draws="numpy")
        return make(num_workers, "spawn", dataset, shuffle=False, persistent_workers=True)

    both(made, epochs)


def nothing(samples: list[Any]) -> None:
    """A collate_fn that drops what is bad, and all of it is."""


def test_batches_that_are_none():
    loader = make(1, "spawn", collate_fn=nothing)
    with installed():
        assert list(loader) == [None] * len(loader)


class SlowToLeave(Dataset):
    """The odd samples take long, so that one worker ends at once and the other does not."""

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(index % 2 * 1.0)
        return torch.zeros(1)


def test_waiting_for_a_worker_that_ends_late_takes_no_cpu():
    with installed():
        iterator = iter(
            DataLoader(SlowToLeave(), 1, num_workers=2, multiprocessing_context="spawn")
        )
        next(iterator)
        before_s = time.process_time()
        del iterator
        assert time.process_time() - before_s < 0.3


@pytest.mark.full
def test_large_batches_lie_where_the_worker_wrote_them():
    def run(loader):
        iterator = iter(loader)
        kept = list(iterator)
        yield from kept
        driver = getattr(iterator, "_driver", None)
        if driver is not None:
            assert driver.stats.wire_nbytes < driver.stats.raw_nbytes / 100
            assert driver.stats.num_copied == 0

    both(partial(make, method="spawn", dataset=Plain(size=1 << 17)), run)


def killed(loader: DataLoader, kills: bool) -> Iterator[Any]:
    iterator = iter(loader)
    for k, batch in enumerate(iterator):
        yield batch
        loader.dataset.scale = 9.0  # a replacement must not see it
        if kills and k == 1:
            os.kill(iterator._workers[0].pid, signal.SIGKILL)


@pytest.mark.few(1)
@pytest.mark.parametrize("method", METHODS)
def test_a_killed_worker_is_replaced_from_what_the_dataset_was_at_iter(method):
    made = partial(make, method=method, batch_size=1, prefetch_factor=1)
    both(made, partial(killed, kills=True), plain_run=partial(killed, kills=False))


@pytest.mark.full
def test_an_iterable_of_a_killed_worker_is_fetched_again():
    def made(num_workers):
        return make(num_workers, "forkserver", Shards(SHARDS["even"], "random"), shuffle=False,
                    prefetch_factor=1)  # fmt: skip

    both(made, partial(killed, kills=True), plain_run=partial(killed, kills=False))


class Counted(Plain):
    """Shares a number and a tensor with the trainer."""

    def __init__(self, context: Any) -> None:
        super().__init__()
        self.count = context.Value("i", 0)
        self.seen = torch.zeros(16).share_memory_()

    def __getitem__(self, index: int) -> Any:
        with self.count.get_lock():
            self.count.value += 1
        self.seen[index] += 1
        return super().__getitem__(index)


def test_what_the_script_shares_with_its_workers_and_their_replacements_stays_shared():
    context = multiprocessing.get_context("spawn")
    dataset = Counted(context)
    with installed():
        for _ in killed(make(2, "spawn", dataset, batch_size=1), kills=True):
            pass
    assert dataset.count.value == int(dataset.seen.sum()) >= 16
    assert bool((dataset.seen >= 1).all())


class Unpicklable(Plain):
    def __init__(self) -> None:
        super().__init__()
        self.function = (each for each in ())


@pytest.mark.few(1)
@pytest.mark.parametrize("method", METHODS)
def test_what_cannot_be_pickled_is_told_as_torch_tells_it(method):
    def run(loader):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                iter(loader)
            except Exception as error:
                yield type(error).__name__, str(error)
        yield [str(w.message) for w in caught if "pickle" in str(w.message)]

    def made(num_workers):
        return make(num_workers, method, Unpicklable())

    told = []
    for side in (contextlib.nullcontext(), installed()):
        with side:
            told.append(list(run(made(2))))
    assert told[0] == told[1]
    assert len(told[0]) == 2 and told[0][1]


def state_of_the_third(make):
    loader = make()
    for _ in zip(range(3), loader, strict=False):
        yield loader.state_dict()
    state = loader.state_dict()
    loader = make()
    loader.load_state_dict(state)
    yield from loader


@pytest.mark.few(1)
@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated:UserWarning")
@pytest.mark.parametrize("method", METHODS)
def test_a_spawned_worker_tells_the_same_states(method):
    pytest.importorskip("torchdata.stateful_dataloader", reason="torchdata not installed")
    from tests.equality import stateful

    make = partial(
        stateful.loader_of, "walks telling", workers=1, num_samples=15,
        multiprocessing_context=method,
    )  # fmt: skip
    stateful.both(state_of_the_third, make, is_ragged=True)


@pytest.mark.parametrize(
    ("method", "num_epochs"),
    [("spawn", 5), pytest.param("forkserver", 6, marks=pytest.mark.full)],
)
def test_they_remember_samples_in_memory_and_on_disk(method, num_epochs, tmp_path, monkeypatch):
    monkeypatch.setattr(shelves, "_shelf", None)
    settings = Settings(
        quiet=True, cache_memory=8 << 20, cache_disk=Disk(str(tmp_path / "disk"), 1 << 30)
    )
    large = partial(
        make,
        method=method,
        dataset=impure.LargeInPlace(tmp_path),
        batch_size=4,
        persistent_workers=method == "spawn",
    )

    def run(loader):
        for _ in range(num_epochs):
            yield from loader

    both(large, run, settings=settings)
    [(_, why, counts)] = shelves.own_shelf().places().values()
    assert why == ""
    assert counts.num_hits > impure.NUM
    assert counts.stored_nbytes > 8 << 20  # more than memory has room for
