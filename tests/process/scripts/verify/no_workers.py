"""Equal: batches that are made, with draws, in the training process itself."""

import torch
from torch.utils.data import DataLoader, Dataset


class Noise(Dataset):
    def __len__(self):
        return 20

    def __getitem__(self, index):
        return torch.rand(3), index


for _ in range(2):
    for _ in DataLoader(Noise(), batch_size=4, shuffle=True):
        torch.rand(1)
