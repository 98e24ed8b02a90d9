"""Says how often its SIGCHLD handler ran: for its own child alone, which the handler waits for."""

import os
import signal
import sys

import torch
from torch.utils.data import DataLoader, Dataset


class Slow(Dataset):
    """Samples of 20 ms on torch's side, too: made ahead by processes under stoker."""

    def __len__(self) -> int:
        return 60

    def __getitem__(self, index: int) -> torch.Tensor:
        sum(range(300_000))
        return torch.full((4,), index)


waited = []
heard, hear = os.pipe()


def reap(*_: object) -> None:
    waited.append(os.waitstatus_to_exitcode(os.wait()[1]))
    os.write(hear, b"1")


signal.signal(signal.SIGCHLD, reap)
for num_workers in map(int, sys.argv[1:]):
    for batch in DataLoader(Slow(), 2, num_workers=num_workers):
        assert not waited, batch
if os.fork() == 0:
    os._exit(7)
os.read(heard, 1)
print(waited)
