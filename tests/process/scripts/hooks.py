"""Registers what must be done around forks, some of which only a thread of this process can do."""

import os
import queue
import sys
import threading

import torch
from torch.utils.data import DataLoader

asked: queue.SimpleQueue[threading.Event] = queue.SimpleQueue()


def answer() -> None:
    while True:
        asked.get().set()


def ask() -> None:
    answered = threading.Event()
    asked.put(answered)
    answered.wait()


threading.Thread(target=answer, daemon=True).start()
lock = threading.Lock()
seeds = [0]
os.register_at_fork(before=ask, after_in_parent=ask)
os.register_at_fork(before=lock.acquire, after_in_parent=lock.release, after_in_child=lock.release)
os.register_at_fork(after_in_child=lambda: seeds.append(os.getpid()))


class Samples(torch.utils.data.Dataset):
    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> tuple[int, bool, bool]:
        return index, lock.locked(), seeds[-1] == os.getpid()


for batch in DataLoader(Samples(), 3, num_workers=2):
    print(batch)
print("done", file=sys.stderr)
