"""A module called tqdm that is none wraps the loader; its class has neither _instances nor more."""

import sys
import types

from torch.utils.data import DataLoader

fake = types.ModuleType("tqdm")


class Bar:
    def __init__(self, loader):
        self.loader = loader

    def __iter__(self):
        for k, batch in enumerate(self.loader):
            print(f"\r{k + 1}/{len(self.loader)}", end="")
            yield batch
        print()

    def __getattr__(self, name):
        raise RuntimeError(name)


fake.tqdm = Bar
sys.modules["tqdm"] = fake
for workers in (0, 2):
    print([b.tolist() for b in fake.tqdm(DataLoader(range(6), 2, num_workers=workers))])
