"""An atexit handler raises, standard output is a full disk: exit code 120, as Python's."""
# ends: 120

import atexit
import os

from torch.utils.data import DataLoader

print([b.tolist() for b in DataLoader(range(8), 2, num_workers=2)], flush=True)
atexit.register(lambda: 1 // 0)
os.dup2(os.open("/dev/full", os.O_WRONLY), 1)
print("lost")
