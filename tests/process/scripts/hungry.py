"""Loaders that want much of something. Prints digests, or whether all stayed as it was.

usage: hungry.py kept|tensors|batches|workers|wide|"3 GB"|killed [no-memfd]
"""

import os
import signal
import sys

import torch
from torch.utils.data import DataLoader, Dataset

from stoker.reports.digest import batch_sha256

torch.manual_seed(3)
WHAT = sys.argv[1]

if "no-memfd" in sys.argv:

    def refuse(*args, **kwargs):
        raise OSError(1, "memfd_create refused")

    os.memfd_create = refuse


class Made(Dataset):
    """Calls `make` for each of n samples."""

    def __init__(self, n, make):
        self.n, self.make = n, make

    def __len__(self):
        return self.n

    def __getitem__(self, index):
        return self.make(index)


def noise(*shape):
    return lambda index: torch.full(shape, float(index)) + torch.arange(shape[-1])


def out_of_memory(index):
    if index == 5:
        os.kill(os.getpid(), signal.SIGKILL)
    return index


def many(samples):
    return [torch.tensor([sample, k]) for sample in samples for k in range(5000)]


def stays(loader):
    """Keep everything, then look whether it still is what it was."""
    kept, digests = [], []
    for batch in loader:
        kept.append(batch)
        digests.append(batch_sha256(batch))
    assert len(kept) == len(loader)
    print("as they were" if list(map(batch_sha256, kept)) == digests else "changed")


if WHAT == "kept":
    loader = DataLoader(Made(64, lambda i: torch.rand(40_000)), 4, shuffle=True, num_workers=2)
    print(list(map(batch_sha256, list(loader))), list(map(batch_sha256, loader)))
elif WHAT == "tensors":
    stays(DataLoader(list(range(8)), 2, num_workers=2, collate_fn=many))
elif WHAT == "batches":
    stays(DataLoader(Made(2000, noise(5000)), 4, num_workers=2))
elif WHAT == "workers":
    stays(DataLoader(Made(40, noise(30_000)), 4, num_workers=16))
elif WHAT == "wide":
    stays(DataLoader(Made(48, noise(3, 512, 512)), 8, num_workers=3, prefetch_factor=3))
elif WHAT == "3 GB":
    size = 3 << 30
    (x,) = DataLoader(Made(1, lambda i: torch.empty(size, dtype=torch.uint8)), None, num_workers=1)
    print("as they were" if x.numel() == size and x.dtype == torch.uint8 else "changed")
elif WHAT == "killed":
    list(DataLoader(Made(12, out_of_memory), 2, num_workers=2))
