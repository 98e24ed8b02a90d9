"""Fails after so many batches.

usage: failing.py NUM_BATCHES
"""

import sys

from torch.utils.data import DataLoader

num_batches = int(sys.argv[1])
if not num_batches:
    raise ValueError("out of cheese")
for k, _ in enumerate(DataLoader(range(40), batch_size=4, num_workers=2), 1):
    if k == num_batches:
        raise ValueError("out of cheese")
