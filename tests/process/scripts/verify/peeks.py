"""Looks at one batch of a loader, and then uses another one for ever."""

import itertools

import torch
from torch.utils.data import DataLoader, TensorDataset

val = DataLoader(TensorDataset(torch.randn(8, 2)), batch_size=4, num_workers=1)
next(iter(val))
train = DataLoader(TensorDataset(torch.randn(40, 2)), batch_size=4, shuffle=True, num_workers=2)
for _ in itertools.count():
    for _ in train:
        pass
