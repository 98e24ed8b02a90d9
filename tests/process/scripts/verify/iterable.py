"""Equal: an iterable dataset that its workers share out."""

import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info


class Stream(IterableDataset):
    def __iter__(self):
        info = get_worker_info()
        for k in range(info.id, 30, info.num_workers):
            yield k, torch.rand(2)


for _ in range(2):
    for _ in DataLoader(Stream(), batch_size=4, num_workers=2):
        pass
