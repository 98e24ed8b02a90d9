"""Closes every descriptor, as what becomes a daemon does: before, between and after epochs, and its
own files take their numbers."""

import os

import torch
from torch.utils.data import DataLoader

loader = DataLoader(torch.arange(64), 4, num_workers=2)
small = DataLoader(torch.arange(8), 4)
files = []
for epoch in range(3):
    keep = [file.fileno() for file in files]
    for fd in range(3, 256):
        if fd not in keep:
            os.closerange(fd, fd + 1)
    files += [open(f"{os.environ['TMPDIR']}/{epoch}-{k}", "w+b") for k in range(12)]  # noqa: SIM115, PTH123
    print([batch.tolist() for batch in loader], [batch.tolist() for batch in small])
for file in files:
    file.write(b"mine")
    file.flush()
    print(os.fstat(file.fileno()).st_size, end=" ")
    file.close()
    os.unlink(file.name)  # noqa: PTH108
