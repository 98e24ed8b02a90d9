"""How workers start, and what they take, by this Python's default start method or --method.

    list     a list of (path, label) pairs: seconds to the first batch of the last epoch, memory beyond the trainer's then
    growth   the same list, read once as a whole: how much more memory all processes take than when each worker had given a batch
    photos   512 photographs, augmented; workers begin anew in each epoch
    val      512 photographs, resized and cropped in the middle, without draws
    first    256 small samples: seconds from iter() to the first batch of the run

A plain script: it runs the same under python and under stoker. Prints one line.
"""

import argparse
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import torch
from early import AUGMENT, CENTER, NUM_NEW
from one_side import GB, print_line
from photos import photo_folder
from remembered_photos import Photos
from torch.utils.data import DataLoader, Dataset

BATCH, NUM_READ = 4096, 60  # of the list; batches that are read of an epoch of case `list`
LOOK_EVERY = 40  # batches


class Pairs(Dataset):
    def __init__(self, num: int) -> None:
        self.samples = [
            (f"/data/imagenet/train/n{k % 1000:08d}/n{k % 1000:08d}_{k}.JPEG", k % 1000) for k in range(num)
        ]  # fmt: skip

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> int:
        path, label = self.samples[index]
        return len(path) + label

    def nbytes(self) -> int:
        path, label = pair = self.samples[-1]
        each = sum(map(sys.getsizeof, (pair, path, label)))
        return len(self) * each + sys.getsizeof(self.samples)


def pss_nbytes(pids: set[int]) -> int:
    """Memory of processes, of pages that several share their part."""
    found = 0
    for pid in pids:
        try:
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        except OSError:  # it has ended
            continue
        found += next(int(line.split()[1]) << 10 for line in lines if line.startswith("Pss:"))
    return found


def ours() -> set[int]:
    """All processes of this run: those that carry its environment's token."""
    token = f"JOB_BENCH_SIDE={os.environ.get('JOB_BENCH_SIDE', '')}".encode()
    found = set()
    for folder in Path("/proc").iterdir():
        try:
            if folder.name.isdigit() and token in (folder / "environ").read_bytes():
                found.add(int(folder.name))
        except OSError:
            continue
    return found


def epochs(loader: DataLoader, num: int, most: int = sys.maxsize) -> Iterator[tuple[float, int]]:
    """Iterate batches: seconds since the epoch's iter(), the batch's number."""
    for _ in range(num):
        began_s = time.perf_counter()
        for number, _batch in enumerate(loader):
            yield time.perf_counter() - began_s, number
            if number + 1 == most:
                break


def long_list(flags: argparse.Namespace) -> dict[str, float]:
    dataset = Pairs(flags.num)
    loader = DataLoader(dataset, BATCH, shuffle=True, num_workers=flags.num_workers)
    first_s = beyond = 0.0
    for at_s, number in epochs(loader, flags.num_epochs, NUM_READ):
        if number == 0:
            first_s, beyond = at_s, pss_nbytes(ours() - {os.getpid()})
    return {
        "later_first_s": first_s,
        "beyond_gb": beyond / GB,
        "datasets": beyond / dataset.nbytes(),
    }


def growth(flags: argparse.Namespace) -> dict[str, float]:
    method = flags.method or None
    loader = DataLoader(
        Pairs(flags.num), BATCH, shuffle=True, num_workers=flags.num_workers, multiprocessing_context=method
    )  # fmt: skip
    began = most = 0
    from_batch = flags.num_workers  # each has given one: those that still start are no growth
    for _, number in epochs(loader, 1):
        if number == from_batch:
            began = pss_nbytes(ours())
        elif number > from_batch and number % LOOK_EVERY == 0:
            most = max(most, pss_nbytes(ours()))
    return {"growth_gb": (most - began) / GB}


def photos(flags: argparse.Namespace) -> dict[str, float]:
    files = sorted(photo_folder().glob("*/*.jpg"))[:NUM_NEW]
    data = Photos(files, CENTER if flags.case == "val" else AUGMENT)
    loader = DataLoader(data, 32, shuffle=True, num_workers=flags.num_workers)
    began_s = time.perf_counter()
    for _ in epochs(loader, flags.num_epochs):
        pass
    return {"loop_s": time.perf_counter() - began_s}


class Small(Dataset):
    def __len__(self) -> int:
        return 256

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((16,), float(index))


def first(flags: argparse.Namespace) -> dict[str, float]:
    for at_s, _ in epochs(DataLoader(Small(), 16, num_workers=flags.num_workers), 1, 1):
        return {"first_s": at_s}
    raise AssertionError


CASES = {"list": long_list, "growth": growth, "photos": photos, "val": photos, "first": first}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--case", choices=CASES, required=True)
    parser.add_argument("--num-workers", type=int, default=2, metavar="W")
    parser.add_argument("--num-epochs", type=int, default=2)
    parser.add_argument("--num", type=int, default=3_000_000, help="pairs of the list")
    parser.add_argument("--method", default="", help="of case growth")
    flags = parser.parse_args()
    print_line(CASES[flags.case](flags))


if __name__ == "__main__":
    main()
