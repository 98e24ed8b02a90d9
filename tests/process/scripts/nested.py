"""A dataset whose samples come from a DataLoader of their own, in as many workers as are asked for.

usage: nested.py NUM_WORKERS
"""

import sys
import time

import torch
from torch.utils.data import DataLoader, Dataset


class Inner(Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, i):
        time.sleep(0.005)
        return torch.tensor(float(i))


class Outer(Dataset):
    def __len__(self):
        return 80

    def __getitem__(self, i):
        inner = DataLoader(Inner(), batch_size=2, generator=torch.Generator())
        return sum(batch.sum() for batch in inner) + i


for _ in range(2):
    for batch in DataLoader(Outer(), batch_size=2, num_workers=int(sys.argv[1])):
        print(batch.tolist())
