"""A sampler draws from random, NumPy and torch while it is asked, and the loop draws as well."""

import random

import numpy as np
import torch
from torch.utils.data import DataLoader, Sampler


class Draws(Sampler):
    def __iter__(self):
        for _ in range(9):
            yield random.randrange(50) + np.random.randint(50) + torch.randint(50, ()).item()

    def __len__(self):
        return 9


random.seed(1), np.random.seed(2), torch.manual_seed(3)
for workers in (0, 1, 2):
    for batch in DataLoader(range(200), 2, sampler=Draws(), num_workers=workers):
        print(batch.tolist(), random.random(), np.random.rand(), torch.rand(()).item())
