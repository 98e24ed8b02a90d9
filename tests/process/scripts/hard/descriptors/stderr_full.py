"""Standard error is a full disk: nothing that is said there may end the training."""

import os

from torch.utils.data import DataLoader

os.dup2(os.open("/dev/full", os.O_WRONLY), 2)
for workers in (0, 2):
    for _ in range(2):
        print([b.tolist() for b in DataLoader(range(8), 2, num_workers=workers)])
