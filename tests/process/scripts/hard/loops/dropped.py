"""Iterators die in mid-epoch, in a reference cycle, and are asked by weak references when."""

import gc
import weakref

from torch.utils.data import DataLoader


class Trainer:
    def __init__(self, workers):
        self.loader = DataLoader(range(20), 2, num_workers=workers)
        self.iterator, self.me = iter(self.loader), self


for workers in (0, 2):
    trainer = Trainer(workers)
    print(next(trainer.iterator).tolist())
    refs = [weakref.ref(trainer.iterator), weakref.ref(trainer.loader), weakref.ref(trainer)]
    del trainer
    gc.collect()
    print([ref() for ref in refs])
    iterator = iter(DataLoader(range(20), 2, num_workers=workers))
    ref = weakref.ref(iterator)
    del iterator
    print(ref())
