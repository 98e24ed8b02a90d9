"""The same lazy mappings where everything is left to torch and stoker only counts."""
# flags: --off
# stays with torch

from collections import UserDict

from torch.utils.data import DataLoader


class Lazy(UserDict):
    def values(self):
        raise RuntimeError("values")

    def __bool__(self):
        raise RuntimeError("truth")

    def __len__(self):
        raise RuntimeError("len")


for workers in (0, 2):
    for batch in DataLoader(range(6), 2, num_workers=workers, collate_fn=lambda s: Lazy(x=s)):
        print(batch["x"])
