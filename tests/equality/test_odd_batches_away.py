"""Batches that are None or have no truth, from other machines."""

import pytest
from torch.utils.data import DataLoader, Dataset

from tests.equality.sides import both

pytestmark = pytest.mark.away


class Indices(Dataset):
    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> int:
        return index


def collate(samples: list[int]) -> int | None:
    return samples[0] if samples[0] % 3 == 1 else None


def test_batches_that_are_none_come_from_other_machines():
    def make(num_workers: int) -> DataLoader:
        return DataLoader(Indices(), 1, collate_fn=collate, num_workers=num_workers)

    both(make, list)
