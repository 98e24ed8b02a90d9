"""Loops over a map-style or an iterable dataset with two workers, plain or under stoker; for scripts/arm.

    python two_loops.py map|iterable plain|stoker

Promise: prints the digest of two epochs; fails where stoker was asked, and left the loader to torch.
"""

import hashlib
import sys

import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info

import stoker

SEED = 7


class Numbers(Dataset):
    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((32, 32), float(index)) + torch.rand(32, 32)


class Stream(IterableDataset):
    def __iter__(self):
        worker = get_worker_info()
        for number in range(worker.id, 64, worker.num_workers):
            yield Numbers()[number]


def main(kind: str, side: str) -> None:
    torch.manual_seed(SEED)
    if side == "stoker":
        stoker.install(quiet=True, no_run_log=True)
    loader = (
        DataLoader(Numbers(), 8, shuffle=True, num_workers=2)
        if kind == "map"
        else DataLoader(Stream(), 8, num_workers=2)
    )
    sums = hashlib.sha256()
    for _ in range(2):
        for batch in loader:
            sums.update(batch.numpy().tobytes())
    if side == "stoker":
        (told,) = stoker.report().loaders
        assert told.offloaded, told.reasons
    print(sums.hexdigest())


if __name__ == "__main__":
    main(*sys.argv[1:])
