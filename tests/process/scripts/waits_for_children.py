"""Tells what os.wait() tells: of the script's own children alone."""

import contextlib
import ctypes
import os
import sys
import time

import torch
from away_hosts import wait_for_hosts
from torch.utils.data import DataLoader, Dataset

if "subreaper" in sys.argv:
    ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER


class Slow(Dataset):
    def __len__(self) -> int:
        return 60

    def __getitem__(self, index: int) -> torch.Tensor:
        end_s = time.perf_counter() + 0.02
        while time.perf_counter() < end_s:
            continue
        return torch.full((4,), index)


def no_child(*when: object) -> None:
    with contextlib.suppress(ChildProcessError):
        print(*when, "somebody's child:", os.waitpid(-1, os.WNOHANG))


for batch in DataLoader(Slow(), 2):
    no_child("without workers", batch[0, 0].item())
no_child("after it")
for epoch in range(2):
    child = os.fork()
    if child == 0:
        os._exit(7)
    batches = iter(DataLoader(torch.arange(64), 4, num_workers=2))
    wait_for_hosts(batches, int("cluster" in sys.argv))
    total = sum(int(batch.sum()) for batch in batches)
    pid, status = os.wait()
    print(total, pid == child, os.waitstatus_to_exitcode(status))
    no_child("epoch", epoch)
    try:
        print("waited for somebody", os.wait())
    except ChildProcessError:
        print("no child left")
