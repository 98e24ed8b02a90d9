"""Iterates over samples that can be remembered, on hosts if there are any; tells the digest, and waits.

Arguments, if there are hosts: how many to wait for; how many hits they must have told.
"""

import hashlib
import sys

import torch
from away_hosts import tell, wait_for_hosts, wait_until_told
from torch.utils.data import DataLoader, Dataset

NUM_SAMPLES, NUM_FLOATS, NUM_EPOCHS = 96, 1 << 16, 5


class Slow(Dataset):
    def __len__(self) -> int:
        return NUM_SAMPLES

    def __getitem__(self, index: int) -> torch.Tensor:
        total = 0
        for k in range(100_000):
            total += (index * k) % 7
        value = torch.full((NUM_FLOATS,), float(total))
        return value + torch.rand(())


def main() -> None:
    torch.manual_seed(3)
    loader = DataLoader(Slow(), 4, shuffle=True, num_workers=4, persistent_workers=True)
    digest = hashlib.sha256()
    for _ in range(NUM_EPOCHS):
        iterator = iter(loader)
        if len(sys.argv) > 1:
            wait_for_hosts(iterator, int(sys.argv[1]))
        for batch in iterator:
            digest.update(batch.numpy().tobytes())
    if len(sys.argv) > 2:
        wait_until_told(iterator, int(sys.argv[2]))
    tell(f"digest {digest.hexdigest()}")
    sys.stdin.read()


main()
