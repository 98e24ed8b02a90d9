"""pin_memory=True where there is no accelerator: torch is told that there is one, and pins nothing.

What is pinned, and what copies in flight read, is tested on a GPU: tests/gpu.
"""

import pytest
import torch
from torch.utils.data import DataLoader

from tests.equality.pinnable import (
    BROKEN,
    BROKEN_IDS,
    Own,
    Samples,
    end_torchs_workers,
    first_words,
)
from tests.equality.sides import both


@pytest.fixture(autouse=True)
def an_accelerator(monkeypatch):
    monkeypatch.setattr(torch.accelerator, "is_available", lambda *_: True)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda *_: torch.device("cuda"))
    monkeypatch.setattr(torch.accelerator, "current_device_index", lambda: 0)
    monkeypatch.setattr(torch.accelerator, "set_device_index", lambda index: None)
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor, device=None: tensor)
    yield
    end_torchs_workers()


@pytest.mark.parametrize("persistent", [False, True])
def test_batches_are_torchs_own(persistent):
    def run(loader):
        for _ in range(2):
            yield from loader

    def make(w):
        options = {"num_workers": w, "persistent_workers": persistent, "pin_memory": True}
        return DataLoader(Samples((3, 128, 128)), 4, **options)

    plain, _ = both(make, run)
    assert len(plain.digests) == 12


def test_a_batch_type_with_its_own_pin_memory_is_asked_once():
    both(
        lambda w: DataLoader(Samples((4,)), 4, num_workers=w, pin_memory=True, collate_fn=Own),
        lambda loader: ((b.num_pinned, b.x) for b in loader),
    )


@pytest.mark.parametrize(("dataset", "collate", "error"), BROKEN, ids=BROKEN_IDS)
def test_an_error_arrives_with_its_type_and_words(dataset, collate, error):
    def make(w):
        return DataLoader(dataset, 4, num_workers=w, pin_memory=True, collate_fn=collate)

    both(make, first_words(error))
