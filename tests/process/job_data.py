"""Datasets that hosts import by name: nothing else shall be imported with them."""

import subprocess
import sys
from pathlib import Path

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
    """One sample prints so many lines on stdout, one on stderr, and then makes a file."""

    def __init__(self, num_lines, done):
        self.num_lines = num_lines
        self.done = done

    def __len__(self):
        return 1 << 30

    def __getitem__(self, index):
        for number in range(self.num_lines):
            print(number, "x" * 90)
        print("on stderr", file=sys.__stderr__)  # pytest has put its own into sys.stderr
        Path(self.done).touch()
        return index


class LeavesAChild(Dataset):
    """A sample starts a process that outlives its worker, and prints once a pipe has news for it."""

    def __init__(self, news):
        self.news = news

    def __len__(self):
        return 1 << 30

    def __getitem__(self, index):
        with Path(self.news).open() as news:
            subprocess.Popen(["sh", "-c", "read line; echo $line"], stdin=news)
        return index
