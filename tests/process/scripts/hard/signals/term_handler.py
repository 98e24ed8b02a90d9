"""A SIGTERM handler exits from inside the loop, with an exit code, through finally clauses."""
# ends: 43

import os
import signal
import sys

from torch.utils.data import DataLoader


def handler(number, frame):
    print("handler")
    sys.exit(43)


signal.signal(signal.SIGTERM, handler)
try:
    for k, batch in enumerate(DataLoader(range(20), 2, num_workers=2)):
        print(batch.tolist())
        if k == 3:
            os.kill(os.getpid(), signal.SIGTERM)
finally:
    print("finally")
