"""Loaders as points of a product: who draws, who samples, what changes, how batches look.

`Case` names one point; `make_loader` builds it; `three_epochs` trains on it with a `break`.
"""

import itertools
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch.utils.data import (
    DataLoader,
    Dataset,
    DistributedSampler,
    RandomSampler,
    Sampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

from stoker.config import Settings
from tests.equality.forms import FORMS, Form
from tests.equality.sides import both

TRAINER = {"epoch": 0}  # a global of the training script that dataset code reads


def draw_random(_: Dataset) -> list[float]:
    return [random.random(), random.gauss(0, 1)]


def draw_numpy(_: Dataset) -> list[float]:
    return [np.random.rand(), np.random.normal()]


def draw_torch(_: Dataset) -> list[float]:
    return torch.rand(2).tolist()


def draw_own(dataset: Any) -> list[float]:
    return [dataset.own.random()]


def draw_all(dataset: Any) -> list[float]:
    draws = (draw_random, draw_numpy, draw_torch, draw_own)
    return [value for draw in draws for value in draw(dataset)]


def draw_some(dataset: Any) -> list[float]:
    """Of the global generators only, and not for every sample."""
    return draw_torch(dataset) if random.random() < 0.5 else [0.0, 0.0]


DRAWS: dict[str, Callable[[Any], list[float]]] = {
    "none": lambda _: [],
    "random": draw_random,
    "numpy": draw_numpy,
    "torch": draw_torch,
    "own": draw_own,
    "some": draw_some,
    "all": draw_all,
}


class Samples(Dataset):
    """`num_samples` samples whose values depend on all that a dataset can depend on."""

    def __init__(self, num_samples: int, draws: str = "none", form: Form = FORMS["pair"]) -> None:
        self.num_samples, self.draw, self.form = num_samples, DRAWS[draws], form
        self.own = np.random.default_rng(5)
        self.scale = 1.0
        self.epoch = 0

    def __len__(self) -> int:
        return self.num_samples

    def __getitem__(self, index: int) -> Any:
        drawn = self.draw(self)
        values = [index * self.scale, self.epoch, TRAINER["epoch"], *drawn, 0.25, 0.5, 0.75]
        return self.form.sample(index, torch.tensor(values))

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch


class DrawsLast(Samples):
    """The same, with all that is not random before it."""

    def __getitem__(self, index: int) -> Any:
        values = torch.tensor([index * self.scale, self.epoch, TRAINER["epoch"]])
        drawn = self.draw(self)
        return self.form.sample(index, torch.cat([values, torch.tensor([*drawn, 0.25, 0.5, 0.75])]))


class Eager(Sampler[int]):
    """Draws everything at once in `__iter__`, which is not a generator."""

    def __init__(self, dataset: Any) -> None:
        self.length = len(dataset)

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Iterator[int]:
        order = torch.randperm(self.length).tolist()
        random.shuffle(order)
        np.random.shuffle(order)
        return iter(order)


class Lazy(Eager):
    """Draws each index from the trainer's generators when it is asked for."""

    def __iter__(self) -> Iterator[int]:
        for _ in range(self.length):
            yield (int(torch.randint(self.length, ())) + random.randrange(7)) % self.length


def distributed(dataset: Any) -> Sampler[int]:
    return DistributedSampler(dataset, num_replicas=2, rank=1, shuffle=True, seed=3)


SAMPLERS: dict[str, Callable[[Any], Any]] = {
    "in sequence": lambda dataset: None,
    "shuffle": RandomSampler,
    "replacement": lambda d: RandomSampler(d, replacement=True, num_samples=len(d)),
    "weighted": lambda d: WeightedRandomSampler([1.0 + i % 3 for i in range(len(d))], len(d)),
    "subset": lambda d: SubsetRandomSampler(range(0, len(d), 2)),
    "distributed": distributed,
    "eager": Eager,
    "lazy": Lazy,
}


def change_attribute(loader: DataLoader, epoch: int) -> None:
    loader.dataset.scale = 2.0 + epoch


def change_global(loader: DataLoader, epoch: int) -> None:
    TRAINER["epoch"] = epoch + 1


def change_epoch(loader: DataLoader, epoch: int) -> None:
    for part in (loader.dataset, loader.sampler):
        if hasattr(part, "set_epoch"):
            part.set_epoch(epoch + 1)


CHANGES: dict[str, Callable[[DataLoader, int], None]] = {
    "nothing": lambda loader, epoch: None,
    "attribute": change_attribute,
    "global": change_global,
    "set_epoch": change_epoch,
}

WORKERS = (1, 2, 3, 5)
CHAINS = ("script", "7")


@dataclass(frozen=True)
class Case:
    workers: int = 2
    chains: str = "script"
    sampler: str = "shuffle"
    persistent: bool = False
    draws: str = "all"
    change: str = "nothing"
    form: str = "pair"
    prefetch: int = 2

    def __str__(self) -> str:
        values = (self.workers, self.chains, self.sampler, "persistent" if self.persistent else "")
        return "-".join(map(str, (*values, self.draws, self.change, self.form, self.prefetch)))


AXES: dict[str, tuple[Any, ...]] = {
    "workers": WORKERS,
    "chains": CHAINS,
    "sampler": tuple(SAMPLERS),
    "persistent": (False, True),
    "draws": tuple(DRAWS),
    "change": tuple(CHANGES),
    "form": tuple(FORMS),
    "prefetch": (1, 2, 3, 4),
}


def make_loader(
    case: Case,
    num_workers: int,
    num_samples: int = 27,
    kind: type[Samples] = Samples,
    **kwargs: Any,
) -> DataLoader:
    TRAINER["epoch"] = 0
    form = FORMS[case.form]
    dataset = kind(num_samples, case.draws, form)
    arguments = {
        "batch_size": 2,
        "sampler": SAMPLERS[case.sampler](dataset),
        "num_workers": num_workers,
        "persistent_workers": case.persistent,
        "prefetch_factor": case.prefetch,
        "collate_fn": form.collate,
    }
    return DataLoader(dataset, **(arguments | kwargs))


def step() -> None:
    """A training step that uses the trainer's own randomness."""
    random.random()
    np.random.rand()
    torch.rand(1)


def three_epochs(loader: DataLoader, change: str = "nothing") -> Iterator[Any]:
    """Yield every batch of three epochs; the second ends after four."""
    for epoch in range(3):
        for k, batch in enumerate(loader):
            yield batch
            del batch
            step()
            if epoch == 1 and k == 3:
                break
        CHANGES[change](loader, epoch)


def pairwise(axes: dict[str, tuple[Any, ...]]) -> list[dict[str, Any]]:
    """Rows such that any two values of two axes meet in one of them. Greedy, the same every time."""
    missing = {
        ((a, x), (b, y))
        for a, b in itertools.combinations(axes, 2)
        for x, y in itertools.product(axes[a], axes[b])
    }
    rows: list[dict[str, Any]] = []
    while missing:
        row = dict(min(missing, key=repr))
        for name in axes:
            if name not in row:
                row[name] = min(axes[name], key=lambda v: _price(rows, row, name, v, missing))
        row = {name: row[name] for name in axes}
        missing -= set(itertools.combinations(row.items(), 2))
        rows.append(row)
    return rows


def _price(rows: list[Any], row: dict[str, Any], name: str, value: Any, missing: set[Any]) -> Any:
    """Few new pairs cost most; among equals, a value that is in many rows already."""
    new = sum(
        ((other, row[other]), (name, value)) in missing
        or ((name, value), (other, row[other])) in missing
        for other in row
    )
    return -new, sum(done[name] == value for done in rows)


def check(case: Case) -> None:
    """Three epochs of it on torch and on stoker: the same."""
    both(
        partial(make_loader, case),
        partial(three_epochs, change=case.change),
        workers=case.workers,
        settings=Settings(chains=case.chains, quiet=True),
        once=case,
    )
