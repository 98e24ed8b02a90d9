"""Ends in a way of its own while hosts make batches.

usage: away_ends.py END          with HURRY=1 samples do not wait
"""

import os
import signal
import sys
import time

import torch
from away_hosts import num_away, tell, wait_for_hosts
from torch.utils.data import DataLoader, Dataset

NUM_HOSTS = 1
SAMPLE_S = 0.0 if os.environ.get("HURRY") == "1" else 0.005


class Slow(Dataset):
    def __len__(self):
        return 480

    def __getitem__(self, index):
        time.sleep(SAMPLE_S)
        return torch.rand(30_000), index


def fail():
    raise ValueError("in the step")


def wait():
    while True:
        signal.pause()


ENDINGS = {
    "end": lambda: None,
    "raise": fail,
    "sys.exit": lambda: sys.exit(3),
    "wait": wait,
    "next": lambda: [batch for _ in range(1000) for batch in loader],
}

torch.manual_seed(1)
loader = DataLoader(Slow(), 4, shuffle=True, num_workers=2)
iterator = iter(loader)
wait_for_hosts(iterator, NUM_HOSTS)
total = 0.0
is_told = False
for x, index in iterator:
    total += float(x.double().sum()) + int(index[0])
    if not is_told and (num_away(iterator) is None or num_away(iterator) >= 8):
        is_told = True
        tell(f"in the loop {num_away(iterator)}")
        sys.stdin.readline()
        tell("goes on")
        ENDINGS[sys.argv[1]]()
print("the end", total)
