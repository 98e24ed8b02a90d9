"""Trains until a line comes on standard input: the line's text is how it ends.

usage: live.py [NUM_WORKERS]; LINE: exit, SIGKILL, raise
"""

import contextlib
import os
import select
import signal
import sys
import time

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader


class Slow(torch.utils.data.Dataset):
    def __len__(self):
        return 1 << 20

    def __getitem__(self, i):
        time.sleep(0.02)
        return torch.full((64,), float(i))


if "RANK" in os.environ:
    dist.init_process_group("gloo")
loader = DataLoader(Slow(), batch_size=2, num_workers=int(sys.argv[1]) if sys.argv[1:] else 2)
for number, _ in enumerate(loader):
    time.sleep(0.01)
    if number == 2:
        with contextlib.suppress(OSError):  # a rank does not have it
            os.write(int(os.environ["TELL_FD"]), b"in the loop\n")
    if "RANK" in os.environ:
        if number == 400:
            break
    elif select.select([0], [], [], 0)[0]:
        break
line = "" if "RANK" in os.environ else sys.stdin.readline().strip()
if line == "SIGKILL":
    os.kill(os.getpid(), signal.SIGKILL)
if line == "raise":
    raise KeyError(line)
if "RANK" in os.environ:
    dist.destroy_process_group()
