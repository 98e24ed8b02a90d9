"""Clocks raise when they are asked, and go backwards by an hour in mid-epoch."""

import time

from torch.utils.data import DataLoader

real, behind = time.time, 0


def refuse(*args):
    raise RuntimeError("this script has no time")


for workers in (0, 2):
    loader = DataLoader(range(8), 2, num_workers=workers)
    print([b.tolist() for b in loader])
    names = ("perf_counter", "process_time", "thread_time", "ctime", "strftime", "perf_counter_ns")
    kept = [getattr(time, name) for name in names]
    for name in names:
        setattr(time, name, refuse)
    time.time = lambda: real() - behind  # noqa: B023
    for batch in loader:
        behind += 3600
        print(batch.tolist())
    time.time = real
    for name, function in zip(names, kept, strict=True):
        setattr(time, name, function)
