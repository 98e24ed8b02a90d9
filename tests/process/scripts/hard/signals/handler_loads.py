"""A signal handler iterates a loader of its own while the loop is in the middle of another."""

import signal

from torch.utils.data import DataLoader

inner = DataLoader(range(100, 104), 2, num_workers=1)


def handler(number, frame):
    print("handler", [b.tolist() for b in inner])


signal.signal(signal.SIGUSR1, handler)
for workers in (0, 2):
    for batch in DataLoader(range(6), 2, num_workers=workers):
        print(batch.tolist())
        signal.raise_signal(signal.SIGUSR1)
