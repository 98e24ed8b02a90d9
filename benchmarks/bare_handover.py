"""The ceiling for handover.py: the same work, a process a core, and no loader.

Each process fetches and collates into memory that it touches again and again, with stoker's own
copy and allocator settings; nothing is handed to anybody, and there is no training process beside
them. Prints batches_per_s of all processes together.
"""

import itertools
import multiprocessing
import time
from collections.abc import Callable
from typing import Any

import torch
from bare_loop import tune_allocator
from handover import BATCH_SIZE, SAMPLE_SIZE, Cloned, Resident
from one_side import Meter, num_usable_cores, print_line, rate_arguments

from stoker.wire.stream_copy import stream_copy


def stacking() -> Callable[[int], torch.Tensor]:
    dataset, out = Resident(), torch.zeros(BATCH_SIZE, *SAMPLE_SIZE)

    def make(number: int) -> torch.Tensor:
        first = number * BATCH_SIZE
        samples = [dataset[index] for index in range(first, first + BATCH_SIZE)]
        if stream_copy is None:
            return torch.stack(samples, out=out)
        stream_copy(out.data_ptr(), [x.data_ptr() for x in samples], samples[0].nbytes)
        return out

    return make


def cloning() -> Callable[[int], torch.Tensor]:
    return Cloned().__getitem__


WORKS: dict[str, Callable[[], Callable[[int], torch.Tensor]]] = {
    "stack": stacking,
    "clone": cloning,
}


def measure(flags: Any, ready: Any, answers: Any) -> None:
    """One process: warm up alone, then count while all others count too."""
    tune_allocator()
    torch.set_num_threads(1)
    make = WORKS[flags.work]()
    numbers = itertools.count()
    warm_end_s = time.perf_counter() + flags.warm_s
    while time.perf_counter() < warm_end_s:
        batch = make(next(numbers))
    ready.wait()
    meter = Meter(0.0, flags.count_s)
    meter.is_done(time.perf_counter())
    while not meter.is_done(time.perf_counter()):
        batch = make(next(numbers))
    answers.put(meter.figures(batch)["batches_per_s"])


def main() -> None:
    parser = rate_arguments(__doc__)
    parser.add_argument("--work", choices=tuple(WORKS), default="stack")
    flags = parser.parse_args()
    fork = multiprocessing.get_context("fork")
    num_processes = num_usable_cores()
    ready, answers = fork.Barrier(num_processes), fork.SimpleQueue()
    for _ in range(num_processes):
        fork.Process(target=measure, args=(flags, ready, answers)).start()
    rates = [answers.get() for _ in range(num_processes)]
    print_line({"batches_per_s": sum(rates), "num_processes": num_processes})


if __name__ == "__main__":
    main()
