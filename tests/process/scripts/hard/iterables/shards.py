"""Iterable datasets shard by worker, unequally, and one of them ends much before the other."""

import random

from torch.utils.data import ChainDataset, DataLoader, IterableDataset, get_worker_info


class Shards(IterableDataset):
    def __init__(self, sizes):
        self.sizes = sizes

    def __iter__(self):
        info = get_worker_info()
        mine = self.sizes[info.id :: info.num_workers] if info else self.sizes
        buffer = [(size, k) for size in mine for k in range(size)]
        random.shuffle(buffer)
        yield from buffer


for workers in (0, 1, 2):
    for persistent in {False, workers > 0}:
        random.seed(5)
        more = {"num_workers": workers, "persistent_workers": persistent, "collate_fn": lambda s: s}
        loader = DataLoader(Shards([1, 7, 0, 2]), 2, **more)
        for drop in (False, True):
            print(list(loader), list(DataLoader(Shards([5, 1]), 3, drop_last=drop, **more)))
        print(list(DataLoader(ChainDataset([Shards([2]), Shards([1, 1])]), 2, **more)))
