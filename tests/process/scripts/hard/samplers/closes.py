"""A sampler is a generator with a finally clause, and loops break: when is it closed?"""

import gc

from torch.utils.data import DataLoader

told = []


class Closes:
    def __init__(self, name):
        self.name = name

    def __iter__(self):
        try:
            yield from range(10)
        finally:
            told.append(f"closed {self.name}")


for workers in (0, 2):
    loader = DataLoader(range(10), 1, sampler=Closes(workers), num_workers=workers)
    for batch in loader:
        if batch.item() == 3:
            break
    told.append("broke")
    iterator = iter(loader)
    next(iterator)
    del iterator, loader
    gc.collect()
    told.append("dropped")
print(told)
