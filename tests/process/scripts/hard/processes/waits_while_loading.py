"""waitpid(-1, WNOHANG) after every batch, with a loader of persistent workers alive beside it."""

import os

from torch.utils.data import DataLoader

children = set()
for persistent in (False, True):
    loader = DataLoader(range(12), 2, num_workers=2, persistent_workers=persistent)
    for epoch in range(2):
        for batch in loader:
            pid = os.fork()
            if not pid:
                os._exit(batch[0].item())
            children.add(pid)
            while children and (ended := os.waitpid(-1, os.WNOHANG))[0]:
                children.discard(ended[0])
        while children:
            pid, status = os.wait()
            children.remove(pid)  # KeyError where it is none of the script's
        print(persistent, epoch, "all were the script's own")
