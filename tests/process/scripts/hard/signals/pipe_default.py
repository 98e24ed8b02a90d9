"""SIGPIPE is what it is outside Python: deadly. A reader of the script's goes away in mid-epoch."""

import os
import signal

from torch.utils.data import DataLoader

signal.signal(signal.SIGPIPE, signal.SIG_DFL)
loader = DataLoader(range(12), 2, num_workers=2)
for epoch in range(2):
    iterator = iter(loader)
    print([next(iterator).tolist() for _ in range(2)])
    if epoch:
        del iterator  # workers are asked to end, and may have ended
print([b.tolist() for b in loader], os.getpid() > 0)
