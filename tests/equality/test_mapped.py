"""A dataset over a mapped file: hosts map their own, where it is the trainer's."""

import os

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from stoker.remote.net import ship
from tests.equality.sides import both

NUM_TOKENS = 1 << 22

pytestmark = pytest.mark.away


class Tokens(Dataset):
    """Windows at random places, so that chains draw."""

    def __init__(self, file):
        self.tokens = np.memmap(file, np.uint16, "r")

    def __len__(self):
        return 160

    def __getitem__(self, index):
        first = int(torch.randint(0, NUM_TOKENS - 512, ()))
        return index, torch.from_numpy(self.tokens[first : first + 512].astype(np.int64))


@pytest.fixture
def file(tmp_path):
    made = tmp_path / "tokens.bin"
    np.random.default_rng(0).integers(0, 1 << 16, NUM_TOKENS, np.uint16).tofile(made)
    return made


def loader_of(file):
    """By fork: NumPy pickles what is mapped as a copy."""

    def make(num_workers):
        context = "fork" if num_workers else None
        return DataLoader(
            Tokens(file), 8, True, num_workers=num_workers, multiprocessing_context=context
        )

    return make


def test_windows_of_a_mapped_file_are_made_elsewhere(file, places):
    both(loader_of(file), iter)
    assert places.num_away > 0, places.said


def test_a_file_that_differs_there_keeps_the_batches_here(file, places, monkeypatch):
    """It is changed when it was packed: the hosts see another."""
    original = ship._send

    def change_and_send(*args):
        os.utime(file, ns=(0, 0))
        original(*args)

    monkeypatch.setattr(ship, "_send", change_and_send)
    both(loader_of(file), iter)
    assert places.num_away == 0
    assert any("is not there what it is at the trainer: it was changed" in s for s in places.said)
