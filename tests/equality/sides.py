"""Run the same loop twice, under torch alone and under stoker, and compare to the bit.

Promise: both sides start from the same seeds with objects made afresh; what the loop yields is
hashed, and so is the trainer's randomness after each yield; and stoker's side really was stoker's.
"""

import contextlib
import functools
import gc
import hashlib
import pickle
import random
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, _utils

from stoker.config import Settings
from stoker.intercept import patches
from stoker.reports.digest import batch_sha256

QUIET = Settings(quiet=True)

Subject = Any  # a DataLoader, or whatever holds several of them
MakeLoader = Callable[[int], Subject]  # num_workers -> Subject
Run = Callable[[Subject], Iterable[Any]]  # a training loop that yields all that must be equal


@dataclass(frozen=True)
class Side:
    """What one side saw: digests of what the loop yielded, in order, and the trainer's RNG."""

    digests: list[str]
    rng_after_each: list[str]
    rng_at_end: str
    iterators: list[type]


def both(
    make_loader: MakeLoader,
    run: Run,
    *,
    workers: int = 2,
    settings: Settings = QUIET,
    plain_loader: MakeLoader | None = None,
    plain_run: Run | None = None,
    in_order: bool = True,
    offloaded: bool = True,
    once: Hashable = None,
) -> tuple[Side, Side]:
    """Play `run` on torch, then on stoker; assert equality and offload. Returns both sides.

    workers: the script's num_workers; with `chains=N` torch's side gets N, as documented.
    plain_loader: another factory for torch's side (one whose dataset does not kill itself).
    plain_run: another loop for torch's side, where torch cannot do what must be equal to it.
    in_order=False compares what was yielded as a multiset, and no randomness.
    offloaded=False asserts that stoker left every loader to torch.
    once: torch's side is played once for all that give the same, as tests here and elsewhere.
    """
    chains = int(settings.chains) if settings.chains.isdecimal() else workers
    plain = _played.get(once)
    if plain is None:
        with torch_is_quick_to_terminate():
            plain = play(plain_loader or make_loader, plain_run or run, chains)
    if once is not None:
        _played[once] = plain
    with installed(settings):
        ours = play(make_loader, run, workers)
    assert_kinds(plain.iterators, ours.iterators, offloaded)
    if in_order:
        assert_equal(plain, ours)
    else:
        assert Counter(ours.digests) == Counter(plain.digests)
    return plain, ours


_played: dict[Hashable, Side] = {}


def play(make_loader: MakeLoader, run: Run, num_workers: int) -> Side:
    digests, rng_after_each = [], []
    seed_trainer()
    with iterators_seen() as kinds:
        for something in run(make_loader(num_workers)):
            digests.append(batch_sha256(something)[:16])
            rng_after_each.append(trainer_rng())
            del something
    gc.collect()
    return Side(digests, rng_after_each, trainer_rng(), kinds)


@contextlib.contextmanager
def torch_is_quick_to_terminate() -> Iterator[None]:
    """torch's workers that an error or a break left behind are joined for 5 s each before they are
    terminated: here for one."""
    before = _utils.MP_STATUS_CHECK_INTERVAL
    _utils.MP_STATUS_CHECK_INTERVAL = 1.0
    try:
        yield
    finally:
        _utils.MP_STATUS_CHECK_INTERVAL = before


@contextlib.contextmanager
def installed(settings: Settings = QUIET) -> Iterator[None]:
    patches.install(settings)
    try:
        yield
    finally:
        patches.restore()


@contextlib.contextmanager
def iterators_seen() -> Iterator[list[type]]:
    """The types of all iterators that DataLoaders make meanwhile, in order."""
    original, kinds = DataLoader._get_iterator, []

    @functools.wraps(original)
    def get_iterator(self: DataLoader) -> Any:
        iterator = original(self)
        kinds.append(type(iterator))
        return iterator

    DataLoader._get_iterator = get_iterator
    try:
        yield kinds
    finally:
        DataLoader._get_iterator = original


def is_ours(kind: type) -> bool:
    return kind.__module__.startswith("stoker.")


def seed_trainer() -> None:
    random.seed(11)
    np.random.seed(22)
    torch.manual_seed(33)


def trainer_rng() -> str:
    """Digest of the three global generators of this process."""
    state = (random.getstate(), np.random.get_state(), torch.get_rng_state().numpy().tobytes())
    return hashlib.sha256(pickle.dumps(state)).hexdigest()[:16]


def assert_kinds(plain: list[type], ours: list[type], offloaded: bool) -> None:
    assert plain, "no iterator was made: the test tests nothing"
    assert not any(map(is_ours, plain))
    assert len(ours) == len(plain)
    for kind, torchs in zip(ours, plain, strict=True):
        assert is_ours(kind) is offloaded, kind
        assert issubclass(kind, torchs)


def assert_equal(plain: Side, ours: Side) -> None:
    assert plain.digests, "nothing was yielded: the test tests nothing"
    assert not differing(plain.digests, ours.digests), "yields differ (their numbers)"
    assert len(ours.digests) == len(plain.digests)
    assert not differing(plain.rng_after_each, ours.rng_after_each), "randomness after yields"
    assert ours.rng_at_end == plain.rng_at_end


def differing(plain: list[str], ours: list[str]) -> list[int]:
    return [k for k, (a, b) in enumerate(zip(plain, ours, strict=False)) if a != b]
