"""When a training loop gets its first batch, and its first one that another machine made.

The photographs of images.py. `--started` is the wall clock (seconds since 1970) at which the caller
started the command. Prints first_s, and away_s: a worker here is of the training
process's process group.
A plain script: it runs the same under python, where it never gets the second, and under stoker.
"""

import argparse
import os
import time

import torch
from images import Photos
from one_side import print_line
from photos import photo_folder
from torch.utils.data import DataLoader

BATCH_SIZE = 32
MAX_BATCHES = 2000  # half a minute and more


class Marked(Photos):
    """With each sample, the process group of its maker."""

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int, int]:
        return *super().__getitem__(index), os.getpgrp()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--num-workers", type=int, default=2, metavar="W")
    parser.add_argument("--started", type=float, default=time.time())
    flags = parser.parse_args()
    dataset = Marked(photo_folder(), num_rounds=100)
    loader = DataLoader(dataset, BATCH_SIZE, shuffle=True, num_workers=flags.num_workers)
    first_s = away_s = 0.0
    for number, (_, _, makers) in enumerate(loader):
        now_s = time.time() - flags.started
        first_s = first_s or now_s
        if makers[0] != os.getpgrp():
            away_s = now_s
        if away_s or number > MAX_BATCHES:
            break
    print_line({"first_s": first_s, "away_s": away_s})


if __name__ == "__main__":
    main()
