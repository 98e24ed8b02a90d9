"""Trains on a dataset whose samples take long in functions of known names.

usage: examined.py [HOW...]
    pure: samples depend on nothing but their index; alone: they fail in any process but the first
    workers, persistent, sampler (batch_sampler=), unbatched (batch_size=None), iterable, short (epochs of six batches)
    takes: the loop takes its batches apart; breaks: it fails after 60 steps; peeks: another loader comes first
"""

import os
import sys
import time
import zlib

import torch
from torch.utils.data import BatchSampler, DataLoader, Dataset, IterableDataset, RandomSampler

torch.set_num_threads(1)
HOW = sys.argv[1:]
PID = os.getpid()


def decode(i):
    data = bytes(range(256)) * 200
    for _ in range(8):
        data = zlib.decompress(zlib.compress(data, 6))
    return torch.full((3, 32, 32), float(i))


class Pixels(Dataset):
    def __len__(self):
        return 48 if "short" in HOW else 2000

    def __getitem__(self, i):
        if "alone" in HOW and os.getpid() != PID:
            raise RuntimeError("only in the first process")
        if "pure" not in HOW:
            time.time()  # depends on more than its index
        return decode(i).add(1), i % 10


class Stream(IterableDataset):
    def __iter__(self):
        return (Pixels()[i] for i in range(2000))


def as_dict(samples):
    x, y = torch.utils.data.default_collate(samples)
    return {"x": x, "y": y}


def loader():
    options = {
        "num_workers": 2 if {"workers", "persistent"} & set(HOW) else 0,
        "persistent_workers": "persistent" in HOW,
    }
    if "takes" in HOW:
        options["collate_fn"] = as_dict
    if "iterable" in HOW:
        return DataLoader(Stream(), 8, **options)
    if "sampler" in HOW:
        return DataLoader(
            Pixels(), batch_sampler=BatchSampler(RandomSampler(Pixels()), 8, False), **options
        )
    if "unbatched" in HOW:
        return DataLoader(Pixels(), batch_size=None, shuffle=True, **options)
    return DataLoader(Pixels(), 8, shuffle=True, **options)


net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 32 * 32, 10))
optimizer = torch.optim.SGD(net.parameters(), 0.01)
if "peeks" in HOW:
    next(iter(DataLoader(range(10), 5)))
batches, num_steps = loader(), 0
for _ in range(1000):
    for batch in batches:
        x, y = (batch.pop("x"), batch.pop("y")) if "takes" in HOW else batch
        if "unbatched" in HOW:
            x, y = x[None], torch.tensor([y])
        torch.nn.functional.cross_entropy(net(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()
        num_steps += 1
        if "breaks" in HOW and num_steps == 60:
            raise ValueError("of the script's own")
