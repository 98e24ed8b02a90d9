"""The tutorial's script, in small: two workers, three epochs, one loader.

usage: tutorial.py [--kill] [...]      --kill: a worker kills itself, once
"""

import os
import signal
import sys
import time
from pathlib import Path

import torch
from torch.utils.data import DataLoader, Dataset

READ_S = 0.02  # of waiting, as for storage
KILLED = Path(os.environ["TMPDIR"], "killed")


class Photos(Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        if "--kill" in sys.argv and index == 0:
            try:
                KILLED.touch(exist_ok=False)
            except FileExistsError:
                pass
            else:
                os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(READ_S)  # so that data is the limit, on a crowded machine too
        return torch.rand(3, 8, 8), index % 10


torch.manual_seed(0)
loader = DataLoader(Photos(), batch_size=4, shuffle=True, num_workers=2)
for epoch in range(3):
    num_images = 0
    for images, _ in loader:
        num_images += len(images)
    print(f"epoch {epoch + 1}/3  {num_images} images")
