"""Times and counts its own loops, each over a loader of its own, and prints them as JSON lines.

The waits are the dataset's: a sample takes its time. The last line is the whole, from the first
iter() until after stoker's own exit handlers.
"""

import atexit
import json
import os
import time

import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset

SAMPLE_S = 0.012


class Slow(Dataset):
    """`num_samples` numbers. hidden: has something that stoker cannot watch."""

    def __init__(self, num_samples, hidden=False):
        self.num_samples = num_samples
        self.hidden = (number for number in range(3)) if hidden else None

    def __len__(self):
        return self.num_samples

    def __getitem__(self, index):
        time.sleep(SAMPLE_S)
        return torch.full((3,), float(index))


class Stream(IterableDataset):
    def __init__(self, num_samples):
        self.num_samples = num_samples

    def __iter__(self):
        for index in range(self.num_samples):
            time.sleep(SAMPLE_S)
            yield torch.full((3,), float(index))


class Uneven:
    """A batch sampler with batches of 1, 2, 3, ... samples."""

    def __iter__(self):
        yield from ([*range(size)] for size in range(1, 9))

    def __len__(self):
        return 8


LOADERS = {
    "workers": lambda: DataLoader(Slow(83), batch_size=8, num_workers=1),
    "made ahead": lambda: DataLoader(Slow(83), batch_size=8),
    "left": lambda: DataLoader(Slow(83, hidden=True), batch_size=8, shuffle=True),
    "iterable": lambda: DataLoader(Stream(83), batch_size=8),
    "iterable, a worker": lambda: DataLoader(Stream(43), batch_size=8, num_workers=1),
    "uneven": lambda: DataLoader(Slow(9), batch_sampler=Uneven(), collate_fn=lambda b: {"b": b}),
    "single": lambda: DataLoader(Slow(7), batch_size=None),
    "persistent": lambda: DataLoader(
        Slow(43), batch_size=8, num_workers=1, persistent_workers=True
    ),
    "quick": lambda: DataLoader([torch.zeros(3)] * 4001, batch_size=4),
}
BREAKS_AT = {"persistent": 3, "quick": 700}  # in the first of two epochs
COUNTS = {"uneven": lambda batch: len(batch["b"]), "single": lambda batch: 1}


def told(**values):
    os.write(1, json.dumps(values).encode() + b"\n")


def loop(name, loader):
    wait_s = num_batches = num_samples = 0
    for epoch in range(2 if name in BREAKS_AT else 1):
        asked_s = time.monotonic()
        batches = iter(loader)
        while True:
            batch = next(batches, None)
            wait_s += time.monotonic() - asked_s
            if batch is None:
                break
            num_batches += 1
            num_samples += COUNTS.get(name, len)(batch)
            if epoch == 0 and num_batches == BREAKS_AT.get(name):
                break
            asked_s = time.monotonic()
    told(name=name, wait_s=wait_s, num_batches=num_batches, num_samples=num_samples)


if __name__ == "__main__":
    time.sleep(0.5)  # a model is set up
    began_s = time.monotonic()
    atexit.register(lambda: told(wall_s=time.monotonic() - began_s))
    for name, loader in [(name, make()) for name, make in LOADERS.items()]:
        loop(name, loader)
