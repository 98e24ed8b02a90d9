"""DataLoader is subclassed: __iter__ moves batches, __len__ lies, next() prefetches one ahead."""

import torch
from torch.utils.data import DataLoader


class Moves(DataLoader):
    def __iter__(self):
        for batch in super().__iter__():
            yield batch.double() / 2

    def __len__(self):
        return 99


class Prefetches(DataLoader):
    def __iter__(self):
        self.iterator = super().__iter__()
        self.ahead = next(self.iterator, None)
        return self

    def __next__(self):
        if self.ahead is None:
            raise StopIteration
        batch, self.ahead = self.ahead, next(self.iterator, None)
        return batch


torch.manual_seed(0)
for workers in (0, 2):
    for kind in (Moves, Prefetches):
        loader = kind(range(6), 2, shuffle=True, num_workers=workers)
        for _ in range(2):
            print(len(loader), [b.tolist() for b in loader])
