"""The default device becomes `meta` while an iterator is under way, and is `cpu` before it."""

import torch
from torch.utils.data import DataLoader, TensorDataset

data = TensorDataset(torch.arange(6.0))
for workers in (0, 2):
    torch.set_default_device("cpu")
    iterator = iter(DataLoader(data, 2, num_workers=workers))
    torch.set_default_device("meta")
    print([(x.device, x.tolist()) for (x,) in iterator], torch.ones(1).device)
    torch.set_default_device(None)
