"""Six epochs of samples that cost something and then draw: what is remembered of them shows."""

import random

import torch
from torch.utils.data import DataLoader, Dataset


def work(number):
    total = 0
    for k in range(6000):
        total = (total * 31 + number + k) % 1000003
    return total


class Samples(Dataset):
    def __len__(self):
        return 48

    def __getitem__(self, index):
        value = work(index)
        return torch.tensor([index, value, random.random()])


if __name__ == "__main__":
    torch.manual_seed(0)
    loader = DataLoader(Samples(), batch_size=4, shuffle=True, num_workers=2)
    for _ in range(6):
        for _ in loader:
            pass
