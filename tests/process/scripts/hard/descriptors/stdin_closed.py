"""Descriptors 0 to 9 are free when the first worker starts."""

import os
import sys

from torch.utils.data import DataLoader

sys.stdout = os.fdopen(os.dup2(1, 30), "w")
for fd in range(10):
    try:
        os.close(fd)
    except OSError:
        continue
for persistent in (False, True):
    loader = DataLoader(range(8), 2, num_workers=2, persistent_workers=persistent)
    for _ in range(2):
        print([b.tolist() for b in loader])
sys.stdout.flush()
os.dup2(30, 1)
os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
