"""Iterable datasets and DataPipes: shards of any length, resumed, killed, replayed, to the bit.

What an iterable gives next depends on all that it gave before, so a replacement must fetch from
the start again, epoch by epoch.
"""

import itertools
import os
import random
import signal
import warnings
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import (
    ChainDataset,
    DataLoader,
    IterDataPipe,
    MapDataPipe,
)
from torch.utils.data.datapipes.iter import IterableWrapper
from torch.utils.data.datapipes.map import SequenceWrapper

from stoker.blame import LeftToTorch
from stoker.clock import Deadline
from stoker.config import Settings
from stoker.loaders.driver import Driver
from tests.equality.cases import DRAWS, step
from tests.equality.deaths import Deaths
from tests.equality.shards import SHARDS, Shards
from tests.equality.sides import both, installed, is_ours, play


def make(num_workers: int, shards: str = "uneven", draws: str = "all", **how: Any) -> DataLoader:
    dataset = how.pop("dataset", None) or Shards(SHARDS[shards], draws)
    return DataLoader(dataset, num_workers=num_workers, **({"batch_size": 2} | how))


def three_epochs(loader: DataLoader, stop_second_after: int | None = None) -> Iterator[Any]:
    """The dataset is told the epoch."""
    for epoch in range(3):
        for k, batch in enumerate(loader, start=1):
            yield batch
            step()
            if epoch == 1 and k == stop_second_after:
                break
        loader.dataset.epoch = epoch + 1
        yield f"end of epoch {epoch}"


@pytest.mark.parametrize(("workers", "persistent"), [(1, True), (2, False), (3, True), (5, False)])
@pytest.mark.parametrize("shards", SHARDS)
def test_shards_of_any_length(shards, workers, persistent):
    both(partial(make, shards=shards, persistent_workers=persistent), three_epochs, workers=workers)


@pytest.mark.parametrize("persistent", [False, True], ids=["", "persistent"])
@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.away_by_default
def test_an_epoch_that_is_broken_off(workers, persistent):
    """Long shards: how far torch's own workers run ahead of a break is a race where one ends."""
    made = partial(make, shards="long", persistent_workers=persistent)
    both(made, partial(three_epochs, stop_second_after=4), workers=workers)


@pytest.mark.cover(2)
@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("batch_size", [1, 3, 100, None])
@pytest.mark.parametrize("prefetch", [1, 3])
def test_batch_size_drop_last_and_prefetch(prefetch, batch_size, drop_last):
    if batch_size is None and drop_last:
        pytest.skip("torch refuses it")
    how = {"batch_size": batch_size, "drop_last": drop_last, "prefetch_factor": prefetch}
    both(partial(make, **how), three_epochs, workers=3)


@pytest.mark.parametrize("draws", DRAWS)
def test_whoever_draws(draws):
    both(partial(make, draws=draws, persistent_workers=True), three_epochs)


def test_out_of_order_gives_the_same_batches():
    both(partial(make, draws="none", shards="one long", in_order=False), list, workers=3,
         in_order=False)  # fmt: skip


def test_chains_do_not_multiply_an_iterable():
    """More workers would give its samples more often, or share them otherwise."""
    with installed(Settings(chains="7", quiet=True)):
        loader = make(2, draws="none")
        iterator = iter(loader)
        assert is_ours(type(iterator))
        assert iterator._num_workers == 2
        assert sum(len(batch) for batch in iterator) == sum(SHARDS["uneven"])


def test_an_endless_iterable_is_left_at_any_moment():
    class Endless(Shards):
        def __iter__(self):
            while True:
                yield from super().__iter__()

    def run(loader):
        for num in (5, 1, 9):
            yield list(itertools.islice(loader, num))
            step()

    both(partial(make, dataset=Endless(SHARDS["uneven"])), run)


def test_a_chain_of_datasets():
    def chained(num_workers):
        return DataLoader(ChainDataset([Shards((3, 4)), Shards((5, 1, 2))]), 2,
                          num_workers=num_workers)  # fmt: skip

    both(chained, list)


class Sized(Shards):
    """Says how long it is, and may be wrong."""

    def __init__(self, lengths, said):
        super().__init__(lengths)
        self.said = said

    def __len__(self):
        return self.said


@pytest.mark.parametrize("said", [4, 29, 40])
def test_the_warning_about_a_wrong_length(said):
    def run(loader):
        yield len(loader)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            yield from loader
        words = [str(warning.message) for warning in caught]
        yield [word.replace(repr(loader.dataset), "") for word in words if "Length of" in word]

    def sized(num_workers):
        return DataLoader(Sized(SHARDS["uneven"], said), 2, num_workers=num_workers)

    plain, _ = both(sized, run)
    assert plain.digests


class Failing(Shards):
    """Raises at one sample of each shard."""

    def shuffled(self, samples):
        for shard, k in samples:
            if k == 3:
                raise ValueError(f"sample {k} of shard {shard} is broken")
            yield shard, k


def caught_epochs(loader):
    """A loop that goes on after an error, as torch lets it."""
    for _ in range(2):
        iterator = iter(loader)
        while True:
            try:
                yield next(iterator)
            except StopIteration:
                break
            except ValueError as error:
                yield str(error).splitlines()[-1]


@pytest.mark.parametrize("persistent", [False, True], ids=["", "persistent"])
def test_an_error_in_the_middle_ends_its_shard_alone(persistent):
    both(
        partial(make, dataset=Failing(SHARDS["even"]), persistent_workers=persistent),
        caught_epochs,
    )


def test_an_error_names_no_samples_that_there_are_not():
    with installed(), pytest.raises(ValueError, match="is broken") as caught:
        list(make(2, dataset=Failing(SHARDS["even"])))
    notes = " ".join(caught.value.__notes__)
    assert "worker" in notes
    assert "None" not in notes


def test_a_worker_whose_shard_ended_leaves_with_code_0():
    def run(loader):
        iterator = iter(loader)
        yield [next(iterator) for _ in range(6)]
        worker = iterator._workers[2]  # of one sample
        worker.join(20)
        yield worker.exitcode, worker.is_alive()
        yield list(iterator)

    both(partial(make, shards="one long"), run, workers=3)


# -- deaths --------------------------------------------------------------------------------------


class Mortal(Shards):
    def __init__(self, lengths, deaths, buffer=3):
        super().__init__(lengths, buffer=buffer)
        self.deaths = deaths

    def __iter__(self):
        for sample in super().__iter__():
            self.deaths.maybe(int(100 * sample[0] + sample[1] + 10_000 * self.epoch))
            yield sample


@pytest.mark.cover(2)
@pytest.mark.parametrize("persistent", [False, True], ids=["", "persistent"])
@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize(
    "schedule",
    [{0: 1}, {4: 2}, {204: 1, 408: 0, 404: 1}, {10_003: 1, 10_201: 1, 20_005: 2, 2: 1}],
    ids=str,
)
def test_a_killed_worker_is_replayed(tmp_path, schedule, workers, persistent):
    def mortal(num_workers, schedule=schedule):
        return DataLoader(
            Mortal(SHARDS["uneven"], Deaths(tmp_path, schedule)), 2,
            num_workers=num_workers, persistent_workers=persistent,
        )  # fmt: skip

    both(mortal, three_epochs, workers=workers, plain_loader=partial(mortal, schedule={}))
    assert any(tmp_path.iterdir()), "nobody died: tests nothing"


@pytest.mark.cover(1)
@pytest.mark.parametrize("persistent", [False, True], ids=["", "persistent"])
@pytest.mark.parametrize("after", [0, 3, 8])
def test_workers_that_the_trainer_kills_are_replayed(after, persistent):
    def run(loader, kills):
        for _ in range(2):
            iterator = iter(loader)
            for k, batch in enumerate(iterator):
                yield batch
                if kills and k == after:
                    for worker in iterator._workers:
                        if worker.is_alive():
                            os.kill(worker.pid, signal.SIGKILL)

    made = partial(make, persistent_workers=persistent)
    both(made, partial(run, kills=True), plain_run=partial(run, kills=False), workers=3)


def test_persistent_workers_killed_between_epochs_are_replayed():
    def run(loader, kills):
        for _ in range(3):
            yield from loader
            for worker in loader._iterator._workers if kills else ():
                os.kill(worker.pid, signal.SIGKILL)

    made = partial(make, persistent_workers=True)
    both(made, partial(run, kills=True), plain_run=partial(run, kills=False))


def test_the_third_death_on_one_batch_is_told_as_torch_tells_it(tmp_path):
    loader = DataLoader(Mortal((9,), Deaths(tmp_path, {4: 99}), buffer=0), 2, num_workers=1)
    with installed():
        iterator = iter(loader)
        assert len([next(iterator), next(iterator)]) == 2
        with pytest.raises(RuntimeError, match="is killed by signal: Killed"):
            next(iterator)
        iterator._shutdown_workers()
    assert len(list(tmp_path.iterdir())) == 3


# -- DataPipes -----------------------------------------------------------------------------------


class Noisy(IterDataPipe):
    """Adds what the three global generators give."""

    def __init__(self, source: IterDataPipe) -> None:
        self.source = source

    def __iter__(self) -> Iterator[Any]:
        for value in self.source:
            yield value, random.random(), np.random.rand(), torch.rand(2)


def shuffled_pipe(num_workers: int, persistent: bool = False) -> DataLoader:
    pipe = Noisy(IterableWrapper(range(37)).shuffle(buffer_size=5).sharding_filter())
    return DataLoader(pipe, 3, shuffle=True, num_workers=num_workers, persistent_workers=persistent)


def pipe_epochs(loader: DataLoader) -> Iterator[Any]:
    for epoch in range(3):
        for k, batch in enumerate(loader):
            yield batch
            step()
            if epoch == 1 and k == 3:
                break


@pytest.mark.parametrize("persistent", [False, True], ids=["", "persistent"])
@pytest.mark.parametrize("workers", [1, 2, 3])
def test_a_pipe_is_shuffled_and_sharded_as_under_torch(workers, persistent):
    both(partial(shuffled_pipe, persistent=persistent), pipe_epochs, workers=workers)


def test_a_pipe_that_is_given_back_to_torch_before_its_first_batch_is_shuffled_as_by_torch(
    monkeypatch,
):
    def refuse(self: Driver, deadline: Deadline) -> None:
        raise LeftToTorch("each worker needs a copy of its own")

    monkeypatch.setattr(Driver, "wait_next", refuse)
    plain = play(shuffled_pipe, pipe_epochs, 2)
    with installed():
        ours = play(shuffled_pipe, pipe_epochs, 2)
    assert ours.digests == plain.digests and ours.rng_at_end == plain.rng_at_end
    assert [is_ours(kind) for kind in ours.iterators] == [True, False, False]


def test_a_pipe_whose_workers_are_killed_is_replayed():
    def run(loader, kills):
        for _ in range(3):
            for k, batch in enumerate(loader):
                yield batch
                if kills and k == 4:
                    os.kill(loader._iterator._workers[1].pid, signal.SIGKILL)

    made = partial(shuffled_pipe, persistent=True)
    both(made, partial(run, kills=True), plain_run=partial(run, kills=False))


class Doubled(MapDataPipe):
    def __init__(self, source: MapDataPipe) -> None:
        self.source = source

    def __len__(self) -> int:
        return len(self.source)

    def __getitem__(self, index: int) -> Any:
        return 2 * self.source[index], random.random()


def test_a_map_pipe():
    def made(num_workers):
        return DataLoader(Doubled(SequenceWrapper(list(range(20)))), 3, num_workers=num_workers)

    both(made, pipe_epochs)
