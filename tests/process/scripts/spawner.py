"""Iterates loaders in two spawned children and then itself."""

import torch
from torch.utils.data import DataLoader


def work(rank, num_batches):
    # A spawned child's own workers are spawned as well, unless it says otherwise.
    data = torch.rand(num_batches + rank, 3)
    list(DataLoader(data, num_workers=1, multiprocessing_context="fork"))


if __name__ == "__main__":
    torch.multiprocessing.spawn(work, (4,), nprocs=2)
    work(0, 6)
