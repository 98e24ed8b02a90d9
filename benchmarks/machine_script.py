"""Prints who made each batch of a dataset that holds 64 MB and waits a moment for each sample.

A plain script: it runs the same under python, and under stoker.
"""

import argparse
import os
import time

import torch
from torch.utils.data import DataLoader, Dataset


class Held(Dataset):
    def __init__(self) -> None:
        self.values = torch.rand(16 << 20)

    def __len__(self) -> int:
        return 100_000

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        time.sleep(0.1)
        return self.values[index : index + 1000].clone(), os.getpid()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--num-workers", type=int, default=2, metavar="W")
    flags = parser.parse_args()
    loader = DataLoader(Held(), batch_size=4, num_workers=flags.num_workers)
    for _, pids in loader:
        print(int(pids[0]), flush=True)


if __name__ == "__main__":
    main()
