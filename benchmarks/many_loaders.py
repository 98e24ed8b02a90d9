"""Loaders with little to gain and much to lose: 30 small and odd ones, several epochs each.

Each is built, iterated and dropped as a script would, and timed as a whole. Prints the seconds
of each loader, by name. With `--on-demand` it runs the loader whose name is the next line on
stdin and answers with one JSON line, so that a caller can take turns between two processes.
A plain script: it runs the same under python and under stoker.
"""

import argparse
import gc
import sys
import time
from collections import namedtuple
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from one_side import print_line
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    WeightedRandomSampler,
)

Point = namedtuple("Point", "x y")


class Made(Dataset):
    """`num_samples` samples, each what `make(index)` returns."""

    def __init__(self, num_samples: int, make: Callable[[int], Any]) -> None:
        self.num_samples, self.make = num_samples, make

    def __len__(self) -> int:
        return self.num_samples

    def __getitem__(self, index: int) -> Any:
        return self.make(index)


class Listed(Made):
    """Fetches a whole batch in one call."""

    def __getitems__(self, indices: list[int]) -> list[Any]:
        return [self.make(index) for index in indices]


class Counted(IterableDataset):
    """An iterable that shares its numbers among the workers."""

    def __iter__(self) -> Iterator[torch.Tensor]:
        worker = torch.utils.data.get_worker_info()
        first, step = (worker.id, worker.num_workers) if worker else (0, 1)
        return (torch.full((16,), float(k)) for k in range(first, 256, step))


@dataclass(frozen=True)
class Odd:
    """One loader of the benchmark, and how a script would use it."""

    make: Callable[[], DataLoader]
    num_epochs: int
    stop_after: int | None = None  # batches; the loop breaks then
    keep: bool = False  # list(loader) instead of a loop


def vector(index: int) -> torch.Tensor:
    return torch.full((10,), float(index))


def image(index: int) -> tuple[torch.Tensor, int]:
    return torch.full((3, 64, 64), float(index)), index


def worked(index: int) -> torch.Tensor:
    """About a millisecond of arithmetic."""
    return torch.rand(100_000).sort().values[:10]


def set_up(worker_id: int) -> None:
    torch.manual_seed(worker_id)


def loader(num_samples: int, make: Callable[[int], Any] = vector, **how: Any) -> DataLoader:
    return DataLoader(Made(num_samples, make), **{"batch_size": 4, "num_workers": 2, **how})


def weighted() -> DataLoader:
    return loader(64, sampler=WeightedRandomSampler([1.0, 2.0] * 32, num_samples=64))


def batch_sampled() -> DataLoader:
    batches = BatchSampler(RandomSampler(range(64)), 8, drop_last=True)
    return DataLoader(Made(64, vector), batch_sampler=batches, num_workers=2)


def whole_batches() -> DataLoader:
    """batch_size=None over samples that are batches already."""
    sampler = SequentialSampler(range(32))
    dataset = Made(32, lambda k: torch.full((64, 10), float(k)))
    return DataLoader(dataset, batch_size=None, sampler=sampler, num_workers=2)


ODD_LOADERS: dict[str, Odd] = {
    "one-sample": Odd(lambda: loader(1), 6),
    "tiny-w1": Odd(lambda: loader(8, num_workers=1), 8),
    "tiny-w2": Odd(lambda: loader(8), 6),
    "tiny-w4": Odd(lambda: loader(8, num_workers=4), 4),
    "wide-w8": Odd(lambda: loader(64, num_workers=8), 2),
    "wide-w16": Odd(lambda: loader(64, num_workers=16), 1),
    "more-workers-than-batches": Odd(lambda: loader(8, num_workers=6), 3),
    "persistent": Odd(lambda: loader(16, persistent_workers=True), 60),
    "persistent-w8": Odd(lambda: loader(64, num_workers=8, persistent_workers=True), 12),
    "shuffled": Odd(lambda: loader(256, shuffle=True), 4),
    "weighted": Odd(weighted, 5),
    "batch-sampler": Odd(batch_sampled, 5),
    "batch-size-none": Odd(lambda: loader(64, batch_size=None), 3),
    "whole-batches": Odd(whole_batches, 5),
    "custom-collate": Odd(lambda: loader(64, collate_fn=lambda batch: tuple(batch)), 5),
    "dicts": Odd(lambda: loader(64, lambda k: {"x": vector(k), "id": k, "name": f"n{k}"}), 5),
    "namedtuples": Odd(lambda: loader(64, lambda k: Point(vector(k), (k, [vector(k)]))), 5),
    "strings": Odd(lambda: loader(256, lambda k: f"sentence number {k} " * 8), 5),
    "numpy": Odd(lambda: loader(64, lambda k: np.full((32, 32), k, dtype=np.float32)), 5),
    "fifty-tensors": Odd(lambda: loader(64, lambda k: {f"x{j}": vector(k) for j in range(50)}), 1),
    "getitems": Odd(lambda: DataLoader(Listed(64, vector), batch_size=8, num_workers=2), 5),
    "images": Odd(lambda: loader(128, image, batch_size=16), 4),
    "big-samples": Odd(lambda: loader(12, lambda k: torch.zeros(3, 512, 512), batch_size=2), 2),
    "worked": Odd(lambda: loader(64, worked, worker_init_fn=set_up), 1),
    "many-batches": Odd(lambda: loader(600, batch_size=1), 1),
    "prefetch-16": Odd(lambda: loader(256, prefetch_factor=16), 3),
    "break": Odd(lambda: loader(4096, shuffle=True), 4, stop_after=3),
    "listed": Odd(lambda: loader(128, image), 3, keep=True),
    "in-process": Odd(lambda: loader(2000, num_workers=0), 8),
    "iterable-w2": Odd(lambda: DataLoader(Counted(), batch_size=8, num_workers=2), 5),
}


def use(odd: Odd) -> None:
    batches = odd.make()
    for _ in range(odd.num_epochs):
        if odd.keep:
            list(batches)
            continue
        for k, _ in enumerate(batches, start=1):
            if k == odd.stop_after:
                break


def seconds_of(name: str) -> float:
    """Wall time from building the loader to its end, workers included."""
    gc.collect()  # what the loader before left behind is not this one's
    start_s = time.perf_counter()
    use(ODD_LOADERS[name])
    return time.perf_counter() - start_s


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--on-demand", action="store_true")
    if parser.parse_args().on_demand:
        for line in sys.stdin:
            print_line({line.strip(): seconds_of(line.strip())})
        return
    for name in ODD_LOADERS:  # warm, not counted
        seconds_of(name)
    print_line({name: seconds_of(name) for name in ODD_LOADERS})


if __name__ == "__main__":
    main()
