"""Loaders of every kind where nothing but torch can be imported: what they give, and what came in.

sitecustomize, which the test puts in place, refuses everything else in every process.
"""

import hashlib
import random
import sys
import time
import warnings

import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info

warnings.simplefilter("ignore")  # torch's own: that there is no NumPy


class Drawing(Dataset):
    def __len__(self):
        return 12

    def __getitem__(self, index):
        image = torch.rand(128, 128, dtype=torch.float64) + index  # large enough for an arena
        return image, random.random(), {"name": [f"sample {index}", index * 1.5]}


class Slow(Dataset):
    """Worth making ahead in other processes; holds tensors, which are looked at."""

    def __init__(self):
        self.table = torch.arange(4096)

    def __len__(self):
        return 30

    def __getitem__(self, index):
        time.sleep(0.05)
        return self.table[index : index + 8]


class Stream(IterableDataset):
    def __iter__(self):
        worker = get_worker_info()
        for index in range(worker.id, 20, worker.num_workers):
            yield torch.randn(3) + index


def digest_of(loader, num_epochs=2):
    """Of all batches, in order, and of the generators afterwards."""
    torch.manual_seed(1)
    random.seed(2)
    digest = hashlib.sha256()
    for _ in range(num_epochs):
        for batch in loader:
            digest.update(repr(as_lists(batch)).encode())
    digest.update(repr((torch.get_rng_state().tolist(), random.getstate())).encode())
    return digest.hexdigest()


def as_lists(value):
    if isinstance(value, torch.Tensor):
        return value.tolist()
    if isinstance(value, dict):
        return {key: as_lists(item) for key, item in value.items()}
    return [as_lists(item) for item in value] if isinstance(value, (list, tuple)) else value


def main():
    print("workers", digest_of(DataLoader(Drawing(), 4, shuffle=True, num_workers=2)))
    print("kept", digest_of(DataLoader(Drawing(), 3, num_workers=2, persistent_workers=True)))
    print("iterable", digest_of(DataLoader(Stream(), 4, num_workers=2)))
    print("none", digest_of(DataLoader(Slow(), 1), num_epochs=1))
    spawned = DataLoader(Drawing(), 4, num_workers=1, multiprocessing_context="spawn")
    print("spawned", digest_of(spawned, num_epochs=1))
    print("packages", *sorted({name.partition(".")[0] for name in sys.modules}))


if __name__ == "__main__":
    main()
