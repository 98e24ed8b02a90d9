"""A batch is nested three hundred lists deep, and the recursion limit is what it is."""

import sys

from torch.utils.data import DataLoader


def collate(samples):
    deep = samples[0]
    for _ in range(300):
        deep = [deep]
    return deep


sys.setrecursionlimit(1500)
for workers in (0, 2):
    for batch in DataLoader(range(4), 2, num_workers=workers, collate_fn=collate):
        depth = 0
        while isinstance(batch, list):
            batch, depth = batch[0], depth + 1
        print(depth, batch)
