"""The end of a pipe that the script made before the loop comes when the script and workers closed it."""

import os

from torch.utils.data import DataLoader

read_fd, write_fd = os.pipe()
os.set_inheritable(write_fd, True)
iterator = iter(DataLoader(range(8), 2, num_workers=2))
print([b.tolist() for b in iterator])
workers = iterator._workers
del iterator
for worker in workers:
    worker.join()
os.write(write_fd, b"last words")
os.close(write_fd)
print(os.read(read_fd, 100), os.read(read_fd, 100))
print([b.tolist() for b in DataLoader(range(4), 2, num_workers=2)])
