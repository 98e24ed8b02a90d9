"""What the benchmark scripts share: their flags, their clock, their one JSON line.

Promise: a script measures one side once, in steady state, and prints one JSON line on stdout.
Ban: knows nothing of stoker and of the other side; pairs.py runs the same file on both.
"""

import argparse
import json
import os
import time
from collections.abc import Callable, Iterable
from typing import Any

import torch

GB = 1e9  # bytes; decimal, as throughput is quoted


def num_usable_cores() -> int:
    return len(os.sched_getaffinity(0))


def rate_arguments(what: str) -> argparse.ArgumentParser:
    """Flags of every script that measures a rate; durations are in seconds."""
    parser = argparse.ArgumentParser(description=what)
    parser.add_argument("--num-workers", type=int, default=num_usable_cores(), metavar="W")
    parser.add_argument("--warm-s", type=float, default=1.0, help="not counted")
    parser.add_argument("--count-s", type=float, default=4.0, help="counted after it")
    return parser


def nbytes_of(batch: Any) -> int:
    """Bytes of all tensors in a batch of tuples, lists and dicts."""
    if isinstance(batch, torch.Tensor):
        return batch.nbytes
    if isinstance(batch, dict):
        return sum(nbytes_of(part) for part in batch.values())
    if isinstance(batch, tuple | list):
        return sum(nbytes_of(part) for part in batch)
    return 0


class Meter:
    """Counts batches between two arrivals: the last warm one and the first past `count_s`."""

    def __init__(self, warm_s: float, count_s: float) -> None:
        self._warm_s, self._count_s = warm_s, count_s
        self._first_s: float | None = None
        self._start_s: float | None = None
        self._start_cpu_s = self._wall_s = 0.0
        self._num_batches = 0

    def is_done(self, now_s: float) -> bool:
        """Tell the meter that a batch arrived at `now_s`; True once enough was counted."""
        if self._start_s is not None:
            self._num_batches += 1
            self._wall_s = now_s - self._start_s
            return self._wall_s >= self._count_s
        if self._first_s is None:
            self._first_s = now_s
        if now_s - self._first_s >= self._warm_s:
            # process_time is RUSAGE_SELF: every thread of this process, no child.
            self._start_s, self._start_cpu_s = now_s, time.process_time()
        return False

    def figures(self, batch: Any) -> dict[str, float]:
        """What was counted; `batch` stands for all of them, which have one shape."""
        cpu_s = time.process_time() - self._start_cpu_s
        delivered_gb = nbytes_of(batch) * self._num_batches / GB
        return {
            "batches_per_s": self._num_batches / self._wall_s,
            "gb_per_s": delivered_gb / self._wall_s,
            "trainer_cpu_s_per_gb": cpu_s / delivered_gb,
            "batch_nbytes": nbytes_of(batch),
            "num_batches": self._num_batches,
        }


def measure_rate(loader: Iterable[Any], flags: argparse.Namespace) -> dict[str, float]:
    """Figures of `for batch in loader: pass`, over as many epochs as the time needs."""
    meter = Meter(flags.warm_s, flags.count_s)
    while True:
        for batch in loader:
            if meter.is_done(time.perf_counter()):
                return {**meter.figures(batch), "num_workers": flags.num_workers}


def print_line(figures: dict[str, Any]) -> None:
    print(json.dumps(figures), flush=True)


def timed_epoch(batches: Iterable[Any], step: Callable[[Any], object]) -> tuple[float, float]:
    """Seconds of one epoch, and of its steps."""
    began_s, step_s = time.perf_counter(), 0.0
    for batch in batches:
        step_began_s = time.perf_counter()
        step(batch)
        step_s += time.perf_counter() - step_began_s
    return time.perf_counter() - began_s, step_s
