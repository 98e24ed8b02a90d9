"""Loaders of different lengths are zipped, chained, cycled and enumerated together."""

import itertools

import torch
from torch.utils.data import DataLoader

torch.manual_seed(0)
for workers in (0, 2):
    short = DataLoader(range(4), 2, shuffle=True, num_workers=workers)
    long = DataLoader(range(100, 110), 2, shuffle=True, num_workers=workers)
    print([(a.tolist(), b.tolist()) for a, b in zip(short, long)])  # noqa: B905
    print([(a.tolist(), b.tolist()) for a, b in zip(itertools.cycle(short), long)])
    print([b.tolist() for b in itertools.chain(short, itertools.islice(long, 2), short)])
    print(*itertools.zip_longest(short, long), torch.rand(1).item())
