"""Nested tensors, strided and jagged: no shape, no len, no storage that could be asked for."""

import warnings

import torch
from torch.utils.data import DataLoader

warnings.simplefilter("ignore")


def strided(samples):
    return torch.nested.nested_tensor([torch.arange(s + 1.0) for s in samples])


def jagged(samples):
    return torch.nested.nested_tensor(
        [torch.arange(s + 1.0) for s in samples], layout=torch.jagged
    ).values()


for workers in (0, 1):
    for collate in (strided, jagged):
        loader = DataLoader(range(6), 3, num_workers=workers, collate_fn=collate)
        for batch in loader:
            print(batch.is_nested, [part.tolist() for part in batch.unbind()])
