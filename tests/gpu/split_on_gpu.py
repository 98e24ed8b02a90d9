"""Trains in steps whose parts are known, on a GPU that is one step behind as with a loss that is printed, and tells them.

usage: split_on_gpu.py DATA_S MODEL_S COPY_S STEPS [--waits]; a dataset that sleeps so long, a kernel that runs about so long, a
copy to the GPU that takes about so long, from memory that is not pinned. --waits: the script waits for each step. How long both
took is told by events.
"""

import json
import sys
import time
from collections import deque

import torch
from torch.utils.data import DataLoader

DATA_S, MODEL_S, COPY_S, NUM_STEPS = *map(float, sys.argv[1:4]), int(sys.argv[4])


def took(call):
    torch.cuda.synchronize()
    began_s = time.perf_counter()
    call()
    torch.cuda.synchronize()
    return time.perf_counter() - began_s


class Slow(list):
    def __getitem__(self, i):
        time.sleep(DATA_S)
        return i


def mark():
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


torch.cuda._sleep(400_000_000)  # the GPU's clock rises
cycles = int(MODEL_S * 100_000_000 / took(lambda: torch.cuda._sleep(100_000_000)))
rows = torch.ones(1 << 26)  # 256 MB
rows.to("cuda")
num_times = max(1, round(COPY_S / took(lambda: rows.to("cuda"))))
images = torch.cat([rows] * num_times) if COPY_S else rows[: 1 << 10]
images.to("cuda")
marks, behind = [], deque()
began_s = time.perf_counter()
for number in DataLoader(Slow(range(NUM_STEPS)), batch_size=1):
    before = mark()
    images.to("cuda")
    between = mark()
    torch.cuda._sleep(cycles)
    marks.append((before, between, mark()))
    if "--waits" in sys.argv or number == NUM_STEPS - 1:
        torch.cuda.synchronize()
        continue
    behind.append(marks[-1][-1])
    if len(behind) > 1:
        behind.popleft().synchronize()
all_s = time.perf_counter() - began_s
copy_s = sum(a.elapsed_time(b) for a, b, _ in marks) / 1e3
model_s = sum(b.elapsed_time(c) for _, b, c in marks) / 1e3
print(json.dumps({"data_s": all_s - copy_s - model_s, "copy_s": copy_s, "compute_s": model_s}))
