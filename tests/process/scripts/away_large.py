"""A dataset that holds 500 MB; tells what went over the loopback device of its network namespace."""

import hashlib
import time
from pathlib import Path

import numpy
import torch
from away_hosts import num_away, tell, wait_for_hosts
from torch.utils.data import DataLoader, Dataset

NUM_HOSTS = 3


class Large(Dataset):
    def __init__(self):
        self.values = numpy.arange(500_000_000 // 8)

    def __len__(self):
        return 160

    def __getitem__(self, index):
        time.sleep(0.01)
        self.values[index] += 1  # of its own copy
        return self.values[index * 390_000 :][:1000] + int(torch.randint(0, 9, ()))


def loopback_nbytes():
    (line,) = (x for x in Path("/proc/net/dev").read_text().splitlines() if x.strip()[:3] == "lo:")
    return int(line.split()[9])  # sent


torch.manual_seed(1)
loader = DataLoader(Large(), 4, num_workers=2, shuffle=True)
for epoch in range(2):
    before = loopback_nbytes()
    iterator = iter(loader)
    wait_for_hosts(iterator, NUM_HOSTS)
    digest = hashlib.sha256(b"".join(batch.numpy().tobytes() for batch in iterator))
    tell(f"epoch {epoch} {digest.hexdigest()}")
    tell(f"sent {epoch} {loopback_nbytes() - before} {num_away(iterator)}")
    del iterator
