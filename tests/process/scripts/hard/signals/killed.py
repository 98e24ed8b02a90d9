"""The script kills itself with SIGKILL in mid-epoch, with two loaders open."""
# ends: SIGKILL

import os
import signal

from torch.utils.data import DataLoader

persistent = DataLoader(range(9), 2, num_workers=1, persistent_workers=True)
print([b.tolist() for b in persistent], flush=True)
for batch in DataLoader(range(20), 2, num_workers=2):
    print(batch.tolist(), flush=True)
    if batch[0] == 4:
        os.kill(os.getpid(), signal.SIGKILL)
