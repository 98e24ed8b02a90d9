"""A collate function drops every sample of a batch: the batch is None, and the loop skips it."""

import torch
from torch.utils.data import DataLoader, default_collate


class Some(torch.utils.data.Dataset):
    def __len__(self):
        return 12

    def __getitem__(self, index):
        return None if index in (2, 3, 7, 8, 9) else torch.tensor(index)


def collate(samples):
    samples = [s for s in samples if s is not None]
    return default_collate(samples) if samples else None


for workers in (0, 2):
    print(
        [
            b if b is None else b.tolist()
            for b in DataLoader(Some(), 2, num_workers=workers, collate_fn=collate)
        ]
    )
