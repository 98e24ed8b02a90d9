"""Batches have a pin_memory() of their own, and pin_memory=True is asked for without any device."""

import torch
from torch.utils.data import DataLoader


class Own:
    def __init__(self, samples):
        self.x, self.num_pinned = torch.tensor(samples), 0

    def pin_memory(self):
        self.num_pinned += 1
        return self


for workers in (0, 2):
    for _ in range(2):
        for batch in DataLoader(range(4), 2, num_workers=workers, pin_memory=True, collate_fn=Own):
            print(batch.x.tolist(), batch.num_pinned, batch.x.is_pinned())
