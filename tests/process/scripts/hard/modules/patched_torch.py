"""The script replaces pieces of torch's loader itself: default_collate, the sampler, the iterator."""

import torch
from torch.utils.data import DataLoader, RandomSampler
from torch.utils.data import dataloader as module

plain_collate, plain_next = module.default_collate, module._BaseDataLoaderIter.__next__


def collate(samples):
    return {"patched": plain_collate(samples)}


def patched_next(self):
    batch = plain_next(self)
    return "next", batch


torch.manual_seed(0)
for workers in (0, 2):
    module._utils.collate.default_collate = collate
    RandomSampler.__iter__ = lambda self: iter(range(len(self.data_source) - 1, -1, -1))
    print(list(DataLoader(range(4), 2, shuffle=True, num_workers=workers)))
    module._BaseDataLoaderIter.__next__ = patched_next
    print(list(DataLoader(range(4), 2, num_workers=workers)))
    module._BaseDataLoaderIter.__next__ = plain_next
    module._utils.collate.default_collate = plain_collate
