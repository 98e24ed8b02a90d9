"""Loops over batches that raise, whatever is asked of them. Prints how many of each came."""

import sys

import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset


class Trap:
    """No attribute, length, truth, items nor pickle."""

    def __getattr__(self, name):
        raise RuntimeError(name)

    def __reduce_ex__(self, protocol):
        raise RuntimeError("no pickle")

    __len__ = __bool__ = __iter__ = __getitem__ = keys = values = lambda *_: 1 / 0


class Lazy(dict):
    """Looking at it loads it, once."""

    __len__ = __bool__ = __iter__ = __getitem__ = keys = values = items = lambda *_: 1 / 0


class Shaped:
    def shape(self):
        return 3


def deep():
    chain = []
    for _ in range(100_000):
        chain = [chain]
    return chain


MADE = {
    "trap": Trap,
    "lazy": Lazy,
    "shaped": Shaped,
    "nested": lambda: torch.nested.nested_tensor([torch.zeros(2), torch.zeros(3)]),
    "jagged": lambda: torch.nested.nested_tensor([torch.zeros(2)], layout=torch.jagged),
    "deep": deep,
}


class Numbers(Dataset):
    def __len__(self):
        return 6

    def __getitem__(self, index):
        return index


class Stream(IterableDataset):
    def __iter__(self):
        return iter(range(6))


for dataset in (Numbers(), Stream()):
    for name, make in MADE.items():
        loader = DataLoader(dataset, batch_size=2, collate_fn=lambda batch, make=make: make())
        kinds = [type(batch).__name__ for batch in loader]
        print(type(dataset).__name__, name, kinds)
print("done", file=sys.stderr)
