"""The script may have two gigabytes of addresses more than it has now (RLIMIT_AS)."""

import resource
from pathlib import Path

import torch
from torch.utils.data import DataLoader, TensorDataset

pages = int(Path("/proc/self/statm").read_text().split()[0])
limit = pages * resource.getpagesize() + (2 << 30)
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
data = TensorDataset(torch.arange(80_000.0).view(8, 10_000))
for workers in (0, 2):
    for _ in range(2):
        print([x.sum().item() for (x,) in DataLoader(data, 2, num_workers=workers)])
