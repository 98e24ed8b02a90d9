"""Datasets that hosts import by name: nothing else shall be imported with them."""

import numpy
from torch.utils.data import Dataset


class Large(Dataset):
    """Holds its samples in arrays, writes to one of them, and holds two that are equal."""

    def __init__(self, nbytes):
        self.values = numpy.arange(nbytes // 8)
        self.equal = numpy.ones(1 << 18), numpy.ones(1 << 18)

    def __len__(self):
        return len(self.values)

    def __getitem__(self, index):
        self.values[index] += 1
        self.equal[0][index % 1000] += 1
        return self.values[index] + self.equal[1][index % 1000]


class Lists(Dataset):
    """Gets a list of indices, of any length, and tells how long it was."""

    def __len__(self):
        return 1 << 30

    def __getitem__(self, index):
        return index

    def __getitems__(self, indices):
        return [len(indices)]


class Prints(Dataset):
    def __len__(self):
        return 1 << 30

    def __getitem__(self, index):
        print("x" * 99)
        return index
