"""The script holds all descriptors that it may when it asks a loader without workers, then frees them."""

import os
import resource

from torch.utils.data import DataLoader

resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
print([b.tolist() for b in DataLoader(range(4), 2)])
held = []
try:
    while True:
        held.append(os.dup(0))
except OSError as error:
    print(error)
print([b.tolist() for b in DataLoader(range(8), 2)])
for fd in held:
    os.close(fd)
for _ in range(2):
    print([b.tolist() for b in DataLoader(range(8), 2, num_workers=2)])
