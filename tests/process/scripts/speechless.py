"""Iterates loaders, with a stderr that cannot be written. usage: speechless.py [WHAT]"""

import signal
import sys

import torch
from torch.utils.data import DataLoader, IterableDataset


class Broken:
    def write(self, text):
        raise ValueError("cannot be written")

    def flush(self):
        pass


class Streamed(IterableDataset):
    def __iter__(self):
        yield from range(8)


what = sys.argv[1:]
if "sigpipe" in what:
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
if "broken" in what:
    sys.stderr = Broken()
if "none" in what:
    sys.stderr = None
streamed = DataLoader(Streamed(), batch_size=2)  # stays with torch, with a line
workers = DataLoader(torch.arange(8), batch_size=2, num_workers=2)
for loader in (streamed, workers):
    print([batch.tolist() for batch in loader])
