"""Appends the digest of every batch to the file argv[1], then a line of dashes."""

import random
import sys
from pathlib import Path

import torch
from torch.utils.data import DataLoader, Dataset

from stoker.reports.digest import batch_sha256


class Mixed(Dataset):
    def __init__(self, size):
        self.size = size

    def __len__(self):
        return 12

    def __getitem__(self, index):
        return {"x": torch.rand(self.size), "y": index, "name": str(random.random())}


random.seed(1)
torch.manual_seed(2)
digests = []
for size in (3, 40_000):
    loader = DataLoader(Mixed(size), 4, shuffle=True, num_workers=2)
    for _ in range(2):
        digests += [batch_sha256(batch) for batch in loader]
with Path(sys.argv[1]).open("a") as file:
    file.write("\n".join(digests) + "\n---\n")
