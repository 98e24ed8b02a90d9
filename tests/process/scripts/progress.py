"""Loops that last longer than a second, with bars of others: progress.py none tqdm rich"""

import sys
import time

from torch.utils.data import DataLoader

loader = DataLoader(range(28), batch_size=4, num_workers=1)


def steps(batches):
    for _ in batches:
        time.sleep(0.2)


def none():
    print("the loop begins")
    for k, _ in enumerate(loader):
        time.sleep(0.2)
        if k == 6:
            print("the last step")


def tqdm():
    import tqdm.auto

    for name in ("train", "val"):
        bar = tqdm.auto.tqdm(loader, name, bar_format="{desc}: {bar:10} {n_fmt}/{total_fmt}")
        steps(bar)


def rich():
    from rich.progress import BarColumn, MofNCompleteColumn, Progress

    with Progress(BarColumn(10), MofNCompleteColumn()) as progress:
        print("above the bar")
        steps(progress.track(loader))


for kind in sys.argv[1:]:
    globals()[kind]()
    print(f"end of {kind}")
