"""What a worker's heap is made of, told by the worker."""

from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from stoker.worker.patches import _HUGE_BATCH_NBYTES, end_of_heap
from tests.equality.sides import installed

HUGE = Path("/sys/kernel/mm/transparent_hugepage/enabled")
BATCH_SIZE = 4


class Samples(Dataset):
    """A sample, and how much of its worker's heap is made of huge pages by then."""

    def __init__(self, nbytes):
        self.num_floats = nbytes // 4

    def __len__(self):
        return 6 * BATCH_SIZE

    def __getitem__(self, index):
        x = torch.rand(self.num_floats).mul(2)
        return x, huge_nbytes()


def huge_nbytes():
    """Of [heap] in /proc/self/smaps: proc(5)."""
    is_heap, total = False, 0
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if "-" in line.split(" ", 1)[0]:
            is_heap = line.endswith("[heap]")
        elif is_heap and line.startswith("AnonHugePages:"):
            total += int(line.split()[1]) * 1024
    return total


@pytest.mark.skipif(
    not HUGE.exists() or "[madvise]" not in HUGE.read_text(), reason="not left to programs here"
)
@pytest.mark.skipif(not end_of_heap(), reason="not glibc")
@pytest.mark.parametrize("is_large", [True, False], ids=["large", "small"])
def test_only_workers_of_large_batches_have_huge_pages(is_large):
    nbytes = _HUGE_BATCH_NBYTES // BATCH_SIZE // (1 if is_large else 2)
    seen = [told_by_workers(nbytes)]
    while is_large and not seen[-1] and len(seen) < NUM_TRIES:
        seen.append(told_by_workers(nbytes))
    assert (seen[-1] > 0) is is_large


NUM_TRIES = 5  # a crowded machine may have no huge page to give at this moment


def told_by_workers(nbytes):
    with installed():
        told = [y.max().item() for _, y in DataLoader(Samples(nbytes), BATCH_SIZE, num_workers=1)]
    return told[-1]
