"""Endless iterables, broken off; the generator's finally clause, and a persistent second epoch."""

import itertools

from torch.utils.data import DataLoader, IterableDataset


class Endless(IterableDataset):
    def __init__(self):
        self.num = 0

    def __iter__(self):
        self.num += 1
        yield from ((self.num, k) for k in itertools.count())


for workers, persistent in ((0, False), (2, False), (2, True)):
    dataset = Endless()
    loader = DataLoader(dataset, None, num_workers=workers, persistent_workers=persistent)
    for _ in range(3):
        print(list(itertools.islice(loader, 5)), dataset.num)
