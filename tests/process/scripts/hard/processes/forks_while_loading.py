"""In mid-epoch the script forks children: one goes at once, one becomes a program, one waits."""

import os
import sys

from torch.utils.data import DataLoader


def child(k):
    if k == 0:
        os._exit(10)
    if k == 1:
        os.execv("/bin/sh", ["sh", "-c", "exit 11"])
    os.waitpid(os.posix_spawn("/bin/true", ["true"], {}), 0)
    os._exit(12)


for persistent in (False, True):
    loader = DataLoader(range(12), 2, num_workers=2, persistent_workers=persistent)
    for _ in range(2):
        for k, batch in enumerate(loader):
            if k < 3:
                sys.stdout.flush()
                pid = os.fork()
                if not pid:
                    child(k)
                print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), end=" ")
            print(batch.tolist())
