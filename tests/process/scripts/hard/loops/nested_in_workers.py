"""A dataset has a loader of its own inside, without workers, and asks who its worker is."""

import torch
from torch.utils.data import DataLoader, Dataset, get_worker_info


class Outer(Dataset):
    def __init__(self):
        self.inner = DataLoader(range(10), 5, shuffle=True)

    def __len__(self):
        return 4

    def __getitem__(self, index):
        info = get_worker_info()
        about = None if info is None else (info.id, info.num_workers, info.dataset is self)
        return index, about, [b.tolist() for b in self.inner]


torch.manual_seed(3)
for workers in (0, 2):
    for batch in DataLoader(Outer(), 1, num_workers=workers, collate_fn=lambda s: s[0]):
        print(batch)
    print(torch.rand(1).item(), get_worker_info())
