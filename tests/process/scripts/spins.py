"""Trains a small convolution on the CPU beside two workers, as long as it takes to be judged."""

import torch
from torch.utils.data import DataLoader, Dataset


class Noise(Dataset):
    def __len__(self):
        return 1280

    def __getitem__(self, index):
        image = torch.rand(3, 64, 64)
        for _ in range(30):
            image = image * 1.01
        return image, index % 10


model = torch.nn.Sequential(
    torch.nn.Conv2d(3, 32, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.LazyLinear(10)
)
for x, y in DataLoader(Noise(), 16, num_workers=2):
    torch.nn.functional.cross_entropy(model(x), y).backward()
