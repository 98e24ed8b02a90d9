"""What a sampler, a batch sampler or torch's own code around them raises arrives as from torch.

The same error at the same call, iter() or the k-th next(), the same batches before and after it, and
the sampler asked as often: whoever's code raised it, with workers and without.
"""

import contextlib
import gc
import sys
import traceback
import warnings

import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    WeightedRandomSampler,
)

from stoker.config import Settings
from tests.equality.sides import installed


class BreaksAt:
    """Raises once, when it is asked for the k-th time, and could go on; it counts."""

    num_asked = 0

    def __init__(self, k, error=LookupError):
        self.k, self.error = k, error

    def __iter__(self):
        self.num_asked = 0
        return self

    def __next__(self):
        self.num_asked += 1
        if self.num_asked == self.k:
            raise self.error("the sampler's")
        if self.num_asked > 24:
            raise StopIteration
        return self.num_asked - 1


class NoBatches(BatchSampler):
    def __iter__(self):
        raise ExceptionGroup("two", [ValueError(1), TypeError(2)])


class NoLength(Dataset):
    def __getitem__(self, index):
        return index


class LongerThanItSays(IterableDataset):
    def __iter__(self):
        return iter(range(8))

    def __len__(self):
        return 0

    def __repr__(self):
        return "longer"


def stops():
    yield from range(3)
    next(iter(()))


def weighted(*weights, replacement=True):
    return {"sampler": WeightedRandomSampler(torch.tensor(weights), 8, replacement)}


def shuffled(dataset, generator=None):
    sampler = RandomSampler(range(9), generator=generator)
    sampler.data_source = dataset
    return {"sampler": sampler}


def distributed():
    sampler = DistributedSampler(range(5), num_replicas=2, rank=0)
    sampler.total_size += 1  # which it asserts
    return {"sampler": sampler}


# What the DataLoader is given.
BAD = {
    "weights of zero": lambda: weighted(0.0, 0.0),
    "weights of NaN": lambda: weighted(float("nan"), 1.0),
    "negative weights": lambda: weighted(-1.0, 2.0),
    "more than there are": lambda: weighted(1.0, 1.0, replacement=False),
    "a number": lambda: {"sampler": 5},
    "a number as batches": lambda: {"batch_sampler": 5},
    "no length": lambda: {"sampler": SequentialSampler(NoLength())},
    "no length, shuffled": lambda: shuffled(NoLength()),
    "a number as generator": lambda: shuffled(range(9), generator=5),
    "a number as the loader's generator": lambda: {"shuffle": True, "generator": 5},
    "half made": lambda: {"sampler": RandomSampler.__new__(RandomSampler)},
    "its own assertion": distributed,
    "StopIteration": lambda: {"sampler": stops()},
    "a group": lambda: {"batch_sampler": NoBatches(range(9), 2, False)},
    "at once": lambda: {"sampler": BreaksAt(1)},
    "in the third batch": lambda: {"sampler": BreaksAt(5)},
    "in the seventh batch": lambda: {"sampler": BreaksAt(13)},
    "at the ninth sample": lambda: {"sampler": BreaksAt(9), "batch_size": None},
    "KeyboardInterrupt": lambda: {"sampler": BreaksAt(3, KeyboardInterrupt)},
    "SystemExit": lambda: {"sampler": BreaksAt(13, SystemExit)},
    "a length that lies": lambda: {"dataset": LongerThanItSays()},
}
WORKERS = ({}, {"num_workers": 1}, {"num_workers": 2, "persistent_workers": True})


def of(error):
    return type(error).__qualname__, str(error), repr(error.__cause__), repr(error.__context__)


def outcomes(given, workers, kind=DataLoader):
    """Of two epochs, what iter() and each next() gave, also after an error; and how far the sampler
    and the generator were by then."""
    options = {"dataset": range(30), **given(), **workers}
    if "batch_sampler" not in options:
        options.setdefault("batch_size", 2)
    loader, found = kind(**options), []

    def tried(step, of_what):
        with warnings.catch_warnings(action="error", category=UserWarning):
            try:
                return step(of_what)
            except BaseException as error:
                return of(error)

    for _ in range(2):
        with contextlib.suppress(Exception):
            len(loader)
        iterator = tried(iter, loader)
        for _ in range(14):
            found.append(str(iterator if isinstance(iterator, tuple) else tried(next, iterator)))
            found.append(getattr(loader.sampler, "num_asked", 0))
        found.append(torch.get_rng_state().sum().item())
    return found


@pytest.mark.few(11)
@pytest.mark.parametrize("given", BAD.values(), ids=BAD)
def test_an_error_around_a_sampler_arrives_where_torch_raises_it(given, capfd, monkeypatch):
    check(lambda: [outcomes(given, workers) for workers in WORKERS], monkeypatch)
    assert "stoker failed" not in capfd.readouterr().err


@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated:UserWarning")
@pytest.mark.parametrize("name", ["weights of zero", "StopIteration", "in the seventh batch"])
def test_an_error_around_a_sampler_arrives_where_torchdata_raises_it(name, capfd, monkeypatch):
    pytest.importorskip("torchdata.stateful_dataloader", reason="torchdata not installed")
    from torchdata.stateful_dataloader import StatefulDataLoader

    check(lambda: [outcomes(BAD[name], {"num_workers": 2}, StatefulDataLoader)], monkeypatch)
    assert "stoker failed" not in capfd.readouterr().err


def _place(about):
    """Of what could not be raised the module; Python 3.14 tells no object where an iterator is taken apart."""
    return (
        getattr(about.object, "__module__", None)
        or traceback.extract_tb(about.exc_traceback)[-1].filename
    )


def check(play, monkeypatch):
    sides = []
    for side in (contextlib.nullcontext(), installed(Settings())):
        ignored = []  # torch's iterators that iter() has half made complain when they are collected
        monkeypatch.setattr(
            sys, "unraisablehook", lambda about, to=ignored: to.append(_place(about))
        )
        with side:
            torch.manual_seed(3)
            sides.append(play())
            gc.collect()
    for theirs, ours in zip(*sides, strict=True):
        assert ours == theirs
    assert not [each for each in ignored if "stoker." in each or "/src/stoker/" in each]
