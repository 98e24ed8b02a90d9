"""Impure: a sample tells when it was made."""

import time

from torch.utils.data import DataLoader, Dataset


def stamp():
    return time.time()


class Stamped(Dataset):
    def __len__(self):
        return 16

    def __getitem__(self, index):
        return index, stamp()


for _ in DataLoader(Stamped(), batch_size=4, num_workers=2):
    pass
