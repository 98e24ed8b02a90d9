"""The script closes every descriptor it did not open, between epochs, as daemons do."""
# stderr by chance: threads of torch's queues may find theirs closed

import os

from torch.utils.data import DataLoader

for workers in (0, 2):
    loader = DataLoader(range(8), 2, num_workers=workers)
    for _ in range(3):
        print([b.tolist() for b in loader])
        os.closerange(3, 1024)
