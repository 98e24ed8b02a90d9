"""The ceiling for images.py: the same work in one forked process per core, and no loader.

Each process decodes, augments and collates into one buffer that it uses again and again;
nothing is handed to anybody. Prints images_per_s of all processes together.
"""

import ctypes
import itertools
import mmap
import multiprocessing
import time
from typing import Any

import torch
from images import BATCH_SIZE, Photos
from one_side import Meter, num_usable_cores, print_line, rate_arguments
from photos import photo_folder
from torch.utils.data import default_collate

# glibc's names for mallopt's parameters (malloc.h).
M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD = -1, -2, -3
HUGE_PAGE_NBYTES = 2 << 20


def tune_allocator() -> None:
    """The settings of stoker's workers, src/stoker/worker/patches.py: keep the two in step.

    A big tensor comes from the heap, not from a new mmap that must be touched afresh each time,
    and freed heap stays with the process; the heap is made of huge pages.
    """
    libc = ctypes.CDLL(None)
    libc.mallopt(M_MMAP_THRESHOLD, 1 << 30)
    libc.mallopt(M_TRIM_THRESHOLD, 1 << 30)
    libc.mallopt(M_TOP_PAD, 16 << 20)
    libc.sbrk.restype = libc.malloc.restype = ctypes.c_void_p
    start = -(-libc.sbrk(ctypes.c_ssize_t(0)) // HUGE_PAGE_NBYTES) * HUGE_PAGE_NBYTES
    libc.free(ctypes.c_void_p(libc.malloc(ctypes.c_size_t(256 << 20))))
    length = libc.sbrk(ctypes.c_ssize_t(0)) - start
    libc.madvise(ctypes.c_void_p(start), ctypes.c_size_t(length), mmap.MADV_HUGEPAGE)


def collate_into(buffer: torch.Tensor, samples: list[tuple[torch.Tensor, int]]) -> None:
    images, labels = zip(*samples, strict=True)
    torch.stack(images, 0, out=buffer)
    default_collate(labels)


def endless_batches(dataset: Photos, rank: int) -> Any:
    order = torch.randperm(len(dataset), generator=torch.Generator().manual_seed(rank))
    samples = (dataset[index] for index in itertools.cycle(order.tolist()))
    while True:
        yield list(itertools.islice(samples, BATCH_SIZE))


def work(rank: int, flags: Any, ready: Any, answers: Any) -> None:
    """One process: warm up alone, then count while all others count too."""
    tune_allocator()
    torch.set_num_threads(1)
    torch.manual_seed(rank)
    buffer = torch.zeros(BATCH_SIZE, 3, 224, 224)
    batches = endless_batches(Photos(photo_folder()), rank)
    warm_end_s = time.perf_counter() + flags.warm_s
    while time.perf_counter() < warm_end_s:
        collate_into(buffer, next(batches))
    ready.wait()
    meter = Meter(0.0, flags.count_s)
    meter.is_done(time.perf_counter())
    while not meter.is_done(time.perf_counter()):
        collate_into(buffer, next(batches))
    answers.put(meter.figures(buffer)["batches_per_s"] * BATCH_SIZE)


def main() -> None:
    flags = rate_arguments(__doc__).parse_args()
    fork = multiprocessing.get_context("fork")
    num_processes = num_usable_cores()
    ready, answers = fork.Barrier(num_processes), fork.SimpleQueue()
    photo_folder()
    for rank in range(num_processes):
        fork.Process(target=work, args=(rank, flags, ready, answers)).start()
    rates = [answers.get() for _ in range(num_processes)]
    print_line({"images_per_s": sum(rates), "num_processes": num_processes})


if __name__ == "__main__":
    main()
