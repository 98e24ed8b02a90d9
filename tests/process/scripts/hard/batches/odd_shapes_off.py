"""`shape` of a batch raises, in loaders that torch keeps and stoker only counts."""
# flags: --off
# stays with torch

import torch
from torch.utils.data import DataLoader


class Raises:
    def __getattr__(self, name):
        raise RuntimeError(f"asked for {name}")


class Strange(torch.Tensor):
    @property
    def shape(self):
        raise RuntimeError("asked for shape")


for kind in (Raises, lambda: torch.ones(2).as_subclass(Strange)):
    for batch in DataLoader(range(3), 1, collate_fn=lambda s, kind=kind: kind()):
        print(type(batch).__name__)
