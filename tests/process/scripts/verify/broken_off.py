"""Equal: epochs that end early, and the generators are drawn from in between."""

import random

import torch
from torch.utils.data import DataLoader, TensorDataset

loader = DataLoader(TensorDataset(torch.randn(40, 3)), batch_size=4, shuffle=True, num_workers=2)
for epoch in range(5):
    for k, _ in enumerate(loader):
        if k == epoch:
            break
    random.random()
