"""Samples draw from every generator there is, seed them, and save and restore their states."""

import random

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


class Draws(Dataset):
    def __init__(self):
        self.own = np.random.default_rng(3)
        self.torchs = torch.Generator().manual_seed(4)

    def __len__(self):
        return 6

    def __getitem__(self, index):
        if index == 2:
            random.seed(index), torch.manual_seed(index), np.random.seed(index)
        state = random.getstate()
        drawn = random.random(), np.random.rand(), torch.rand(()).item()
        if index == 4:
            random.setstate(state)
        return *drawn, self.own.random(), torch.rand((), generator=self.torchs).item()


def init(worker):
    random.seed(torch.initial_seed() + worker)
    np.random.seed(torch.initial_seed() % 2**32)


for workers, function in ((0, None), (1, None), (2, init)):
    random.seed(1), np.random.seed(1), torch.manual_seed(1)
    dataset = Draws()
    for _ in range(2):
        print(list(DataLoader(dataset, None, num_workers=workers, worker_init_fn=function)))
        print(random.random(), np.random.rand(), torch.rand(()).item())
