"""Indices are strings, tuples, slices, None, tensors, objects, nothing at all."""

import torch
from torch.utils.data import DataLoader, Dataset


class Key:
    def __init__(self, name):
        self.name = name

    def __repr__(self):
        return f"Key({self.name})"


class Echo(Dataset):
    def __getitem__(self, index):
        return repr(index)


INDICES = ["a", (1, "b"), slice(1, 2), None, torch.tensor(3), Key("k"), 1.5, b"x", {"d": 1}, [], -1]
for workers in (0, 2):
    print(list(DataLoader(Echo(), 3, sampler=INDICES, num_workers=workers, drop_last=True)))
    print(list(DataLoader(Echo(), None, sampler=INDICES, num_workers=workers)))
    batches = [[0, "x"], [None], (1, 2), "ab", {"k": 1}, range(2), iter([7, 8])]
    print(list(DataLoader(Echo(), batch_sampler=batches[: 7 - (workers > 0)], num_workers=workers)))
