"""Standard error is a pipe whose reader has gone, as after `2>&1 | head`."""

import os

from torch.utils.data import DataLoader

read_fd, write_fd = os.pipe()
os.dup2(write_fd, 2)
os.close(read_fd)
os.close(write_fd)
for workers in (0, 2):
    for _ in range(2):
        print([b.tolist() for b in DataLoader(range(8), 2, num_workers=workers)])
