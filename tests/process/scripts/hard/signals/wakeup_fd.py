"""A wakeup descriptor for signals, as asyncio sets one, stays the script's own."""

import os
import signal

from torch.utils.data import DataLoader

read_fd, write_fd = os.pipe()
os.set_blocking(write_fd, False)
os.set_blocking(read_fd, False)
signal.signal(signal.SIGUSR1, lambda number, frame: None)
signal.set_wakeup_fd(write_fd, warn_on_full_buffer=False)
for batch in DataLoader(range(6), 2, num_workers=2):
    signal.raise_signal(signal.SIGUSR1)
    print(batch.tolist(), set(os.read(read_fd, 64)) >= {signal.SIGUSR1})
print(signal.set_wakeup_fd(-1) == write_fd)
