"""No file may grow beyond 64 KiB (RLIMIT_FSIZE), and batches are larger than that."""

import resource

import torch
from torch.utils.data import DataLoader, TensorDataset

resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, 1 << 16))
for workers in (0, 2):
    for _ in range(2):
        try:
            print([b.tolist() for b in DataLoader(range(8), 2, num_workers=workers)])
        except Exception as error:
            print(type(error).__name__)
data = TensorDataset(torch.arange(40_000.0).view(4, 10_000))
print([x.sum().item() for (x,) in DataLoader(data, 1)])
