"""Samples are the dataset's own rows, not batched: in place the trainer changes the dataset."""

import torch
from torch.utils.data import DataLoader, Dataset


class Rows(Dataset):
    def __init__(self):
        self.rows = torch.arange(40_000.0).view(4, 10_000).clone()

    def __len__(self):
        return 4

    def __getitem__(self, index):
        return self.rows[index]


for workers in (0, 2):
    dataset = Rows()
    for _ in range(2):
        for x in DataLoader(dataset, batch_size=None, num_workers=workers):
            x += 1
            print(x[0].item(), x.sum().item())
    print(dataset.rows.sum().item())
