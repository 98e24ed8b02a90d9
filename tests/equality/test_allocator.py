"""What a worker's heap is made of, told by the worker."""

import json
import mmap
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from stoker.worker.patches import _HUGE_BATCH_NBYTES, end_of_heap
from tests.equality.sides import installed
from tests.process.harness import ENVIRON

HUGE = Path("/sys/kernel/mm/transparent_hugepage/enabled")
ROOT = Path(__file__).parents[2]
BATCH_SIZE = 4


class Samples(Dataset):
    """A sample, and how much of its worker's heap is made of huge pages by then."""

    def __init__(self, nbytes):
        self.num_floats = nbytes // 4
        self.kept = []

    def __len__(self):
        return 6 * BATCH_SIZE

    def __getitem__(self, index):
        x = torch.rand(self.num_floats).mul(2)
        self.kept.append(x.clone())  # else the end of the inherited heap, of small pages, is enough
        return x, huge_nbytes()


def huge_nbytes(name="[heap]"):
    """Of what /proc/self/smaps calls so, or of all: proc(5)."""
    is_meant, total = False, 0
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if "-" in line.split(" ", 1)[0]:
            is_meant = line.endswith(name)
        elif is_meant and line.startswith("AnonHugePages:"):
            total += int(line.split()[1]) * 1024
    return total


@pytest.mark.skipif(
    not HUGE.exists() or "[madvise]" not in HUGE.read_text(), reason="not left to programs here"
)
@pytest.mark.skipif(not end_of_heap(), reason="not glibc")
@pytest.mark.parametrize("is_large", [True, False], ids=["large", "small"])
def test_only_workers_of_large_batches_have_huge_pages(is_large):
    nbytes = _HUGE_BATCH_NBYTES // BATCH_SIZE // (1 if is_large else 2)
    of_a_worker, of_any_process = in_a_fresh_process(nbytes)
    if is_large and not of_a_worker and not of_any_process:
        pytest.skip("the machine has no huge page to give at this moment")
    assert (of_a_worker > 0) is is_large


def in_a_fresh_process(nbytes: int) -> list[int]:
    """Bytes in huge pages: of a worker's heap, and of any memory that asks for them.

    Not in pytest's own: what other tests have freed in its heap is of small pages, and a worker
    that inherits enough of that may need no other memory.
    """
    code = f"from tests.equality import test_allocator as t; t.tell({nbytes})"
    told = subprocess.run(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE, text=True, check=True, cwd=ROOT, env=ENVIRON,
    )  # fmt: skip
    return json.loads(told.stdout)


def tell(nbytes: int) -> None:
    with installed():
        told = [y.max().item() for _, y in DataLoader(Samples(nbytes), BATCH_SIZE, num_workers=1)]
    memory = mmap.mmap(-1, 64 << 20, mmap.MAP_PRIVATE)
    memory.madvise(mmap.MADV_HUGEPAGE)
    memory.write(bytes(len(memory)))
    print(json.dumps([told[-1], huge_nbytes("")]))
