"""The trainer normalises in place what it got, large and small; later batches must not show it."""

import torch
from torch.utils.data import DataLoader, TensorDataset

data = TensorDataset(torch.arange(60_000.0).view(6, 10_000), torch.arange(6))
for workers in (0, 2):
    for _ in range(2):
        for x, y in DataLoader(data, 2, num_workers=workers):
            print(x.sum().item(), y.tolist())
            x.zero_()
            y.fill_(-1)
            x.resize_(0)
print(data.tensors[0].sum().item(), data.tensors[1].tolist())
