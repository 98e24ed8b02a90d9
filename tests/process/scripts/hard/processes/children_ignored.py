"""SIGCHLD is ignored, so that the kernel reaps every child itself."""

import os
import signal

from torch.utils.data import DataLoader

signal.signal(signal.SIGCHLD, signal.SIG_IGN)
for persistent in (False, True):
    loader = DataLoader(range(8), 2, num_workers=2, persistent_workers=persistent)
    for _ in range(2):
        print([b.tolist() for b in loader])
pid = os.fork()
if not pid:
    os._exit(3)
