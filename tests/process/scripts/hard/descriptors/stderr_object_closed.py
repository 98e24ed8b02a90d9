"""sys.stderr is closed, then nothing at all, then something that raises."""

import os
import sys

from torch.utils.data import DataLoader


class Bad:
    def write(self, text):
        raise OSError(28, "no space")

    def flush(self):
        raise ValueError("closed")


sys.stderr.close()
for stderr in (sys.stderr, None, Bad()):
    sys.stderr = stderr
    for workers in (0, 2):
        print([b.tolist() for b in DataLoader(range(8), 2, num_workers=workers)])
sys.stderr = open(os.devnull, "w")
