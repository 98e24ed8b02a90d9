"""Batches that a loop might take for something else: None, falsy, without truth or equality.

Each loader gives all of them, several of its batches in a row, so that every way that waits for
a batch meets each of them.
"""

import concurrent.futures
import gc
import operator
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch._utils import ExceptionWrapper
from torch.utils.data import DataLoader, Dataset, IterableDataset

from stoker.clock import thread_cpu_s
from stoker.intercept import run as this_run
from stoker.reports.digest import batch_sha256
from tests.equality.sides import both, installed, is_ours, torch_is_quick_to_terminate


class NoTruth:
    """Whose truth, equality and length nobody may ask."""

    def __bool__(self):
        raise ValueError("asked for its truth")

    def __eq__(self, other):
        raise ValueError("asked for equality")

    def __len__(self):
        raise ValueError("asked for its length")

    __hash__ = None


class Elementwise:
    """Equality that gives an array, as of NumPy and pandas."""

    def __eq__(self, other):
        return np.zeros(2, bool)

    __hash__ = object.__hash__


class Late(concurrent.futures.Future):
    """A future of the script's own, which travels as nothing but its kind."""

    def __reduce__(self):
        return Late, ()


def odd(index: int) -> Any:
    kinds = (
        None, None, (), [], {}, 0, 0.0, False, "", b"", set(), torch.tensor(False),
        torch.empty(0), np.zeros(0), StopIteration("no end"), Ellipsis, NotImplemented,
        NoTruth(), Elementwise(), Late(), object, None, TimeoutError("not ours"), np.nan, index,
    )  # fmt: skip
    return kinds[index % len(kinds)]


NUM = 27


class Indices(Dataset):
    def __len__(self):
        return NUM

    def __getitem__(self, index):
        return index


class Stream(IterableDataset):
    def __iter__(self):
        return iter(range(NUM))


def collate(samples):
    return odd(samples[0])


KINDS = {
    "map": lambda **how: DataLoader(Indices(), 1, collate_fn=collate, **how),
    "samples": lambda **how: DataLoader(Indices(), None, collate_fn=odd, **how),
    "iterable": lambda **how: DataLoader(Stream(), 1, collate_fn=collate, **how),
    "any order": lambda **how: DataLoader(
        Indices(), 1, collate_fn=collate, **how, **({"in_order": False} if how else {})
    ),
}


def made(kind: str, how: dict[str, Any], num_workers: int) -> DataLoader:
    return KINDS[kind](num_workers=num_workers, **how)


def twice(loader: DataLoader) -> Any:
    for _ in range(2):
        yield from loader


@pytest.mark.parametrize(
    ("kind", "how"),
    [
        ("map", {}),
        ("map", {"timeout": 60, "persistent_workers": True}),
        ("samples", {"prefetch_factor": 1}),
        ("iterable", {}),
        ("iterable", {"persistent_workers": True, "timeout": 60}),
    ],
    ids=str,
)
def test_batches_that_look_like_nothing_are_delivered(kind, how):
    both(partial(made, kind, how), twice)


def test_batches_that_look_like_nothing_are_delivered_in_any_order():
    both(partial(made, "any order", {}), list, in_order=False)


def test_pinned_batches_that_look_like_nothing_are_delivered(monkeypatch):
    """The copies are made on their own thread; here they copy nothing."""
    monkeypatch.setattr(torch.accelerator, "is_available", lambda *_: True)
    monkeypatch.setattr(torch.accelerator, "current_device_index", lambda: 0)
    monkeypatch.setattr(torch.accelerator, "set_device_index", lambda _: None)
    monkeypatch.setattr(torch.utils.data._utils.pin_memory, "pin_memory", lambda batch, _: batch)
    both(partial(made, "map", {"pin_memory": True}), list)


class Slow(Indices):
    """Worth processes of their own, although the script asked for none."""

    def __getitem__(self, index):
        end_s = thread_cpu_s() + 0.03
        while thread_cpu_s() < end_s:
            pass
        return index


def test_batches_that_look_like_nothing_are_made_ahead_without_workers():
    def make(num_workers):
        return DataLoader(Slow(), 1, collate_fn=collate, num_workers=num_workers)

    def run(loader):
        iterator = iter(loader)
        yield from iterator
        if getattr(iterator, "_driver", None) is not None:
            reasons.extend(record.reasons for record in this_run.recorder()._loaders)

    reasons: list[list[str]] = []
    both(make, run, workers=0)
    assert reasons == [[]], "nothing was made ahead"


def test_an_exception_wrapper_of_the_scripts_own_is_raised_as_by_torch():
    def wrapped(samples):
        try:
            raise KeyError("inside")
        except KeyError:
            return ExceptionWrapper(where="of the script's own")

    told = []
    for ours in (False, True):
        loader = DataLoader(Indices(), 1, collate_fn=wrapped, num_workers=1)
        with installed() if ours else torch_is_quick_to_terminate():
            with pytest.raises(KeyError) as caught:
                next(iter(loader))
            told.append(str(caught.value).splitlines()[0])
            del caught  # its traceback holds the iterator, and torch is quick to end it here alone
            gc.collect()
    assert operator.eq(*told) and "of the script's own" in told[0]


def test_a_timeout_is_still_told_as_torch_tells_it():
    def hangs(samples):
        import time

        time.sleep(20)

    for ours in (False, True):
        loader = DataLoader(Indices(), 1, collate_fn=hangs, num_workers=1, timeout=0.3)
        with installed() if ours else pytest.MonkeyPatch.context():
            iterator = iter(loader)
            with pytest.raises(RuntimeError, match=r"DataLoader timed out after 0\.3 seconds"):
                next(iterator)
            for worker in iterator._workers:
                worker.terminate()
            iterator._shutdown_workers()
            del iterator


@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated:UserWarning")
def test_a_loader_with_a_state_delivers_them():
    stateful = pytest.importorskip("torchdata.stateful_dataloader")

    def played():
        loader = stateful.StatefulDataLoader(Indices(), 1, collate_fn=collate, num_workers=2)
        iterator = iter(loader)
        return [(batch_sha256(batch), repr(loader.state_dict())) for batch in iterator], iterator

    plain, _ = played()
    with installed():
        ours, iterator = played()
    assert is_ours(type(iterator))
    assert [batch for batch, _ in ours] == [batch for batch, _ in plain]
