"""A loader without workers beside at-fork functions: under torch nothing forks, so none runs.

An argument "package": they are a package's, as far as their file tells; "lock": they are a lock's,
which the script holds.
"""

import os
import sys
import threading
import time

import torch
from torch.utils.data import DataLoader, Dataset

SOURCE = """
def print_fork(): print("a fork")
def wait_for_ever(): threading.Event().wait()
"""
is_package, is_lock = (sys.argv[1:] == [word] for word in ("package", "lock"))
file = "/usr/lib/python3/site-packages/forks.py" if is_package else __file__
names = {"__name__": "forks", "threading": threading}
exec(compile(SOURCE, file, "exec"), names)
lock = threading.Lock()
if is_lock:
    os.register_at_fork(before=lock.acquire, after_in_parent=lock.release)
    lock.acquire()
elif not is_package:
    os.register_at_fork(before=names["print_fork"], after_in_parent=names["print_fork"])
if not is_lock:
    os.register_at_fork(after_in_child=names["wait_for_ever"])


def work(seconds: float) -> None:
    end_s = time.perf_counter() + seconds
    while time.perf_counter() < end_s:
        continue


class Slow(Dataset):
    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> torch.Tensor:
        work(0.02)
        return torch.full((4,), index)


for batch in DataLoader(Slow(), 2):
    work(0.04)
    print(batch)
