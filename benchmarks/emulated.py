"""Loaders whose batches come from emulated hosts (emulated_host.py), and from nowhere else."""

import contextlib
import pickle
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

from stoker.clock import Deadline
from stoker.config import Settings
from stoker.intercept import patches, run
from stoker.loaders.driver import helpers
from stoker.remote.net.auth import versions
from stoker.remote.trainer.fleet import Fleet
from stoker.wire.arena import Arena, Heap, Room
from stoker.wire.batch_codec import encode
from stoker.wire.frame import INLINE, PLACE

PATIENCE_S = 60.0
HOST = str(Path(__file__).with_name("emulated_host.py"))


class Same(Dataset):
    """The one batch, for the loop's first moments on this machine."""

    def __init__(self, batch: torch.Tensor) -> None:
        self.batch = batch

    def __len__(self) -> int:
        return 1 << 40

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.batch


def write_answer(file: Path, batch: torch.Tensor, task_s: float) -> None:
    """The batch as a worker's answer. Its storages lie in the body, in order."""
    heap = Heap(Room(Arena(1 << 30)))
    encoded = encode(batch, heap)
    found = list(PLACE.iter_unpack(encoded.table))
    parts = [bytes(heap.arena.view(offset, nbytes)) for offset, nbytes, _ in found]
    assert encoded.blob_offset == INLINE and all(offset != INLINE for offset, _, _ in found)
    places = encoded.table, encoded.num_storages, encoded.num_buffers
    stream = b"".join(bytes(part) for part in encoded.blob)
    answer = {"parts": parts, "places": places, "stream": stream, "task_s": task_s}
    file.write_bytes(pickle.dumps(answer))


@contextlib.contextmanager
def batches_from_hosts(
    num_hosts: int, batch: torch.Tensor, task_s: float = 0.0
) -> Iterator[tuple[Any, Fleet]]:
    """An iterator whose every chain is with a host, and the fleet."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "answer")
        write_answer(file, batch, task_s)
        settings = Settings(cluster=f"processes:{num_hosts}", allow_mismatch=True, quiet=True)
        more = {"versions": versions(), "script": None, "host": [HOST, str(file)]}
        fleet = Fleet(settings._asdict() | more, lambda text: print(text, file=sys.stderr))
        run.fleet = lambda: fleet
        helpers.local_slots = lambda num_cores, busy_cores: 0
        patches.install(Settings(quiet=True))
        try:
            fleet.wait(lambda: fleet.num_hosts == num_hosts, Deadline(PATIENCE_S))
            loader = DataLoader(Same(batch), batch_size=None, num_workers=num_hosts)
            iterator = iter(loader)
            away = iterator._driver._helpers.away
            fleet.wait(lambda: away.capacity == num_hosts, Deadline(PATIENCE_S))
            iterator._driver._hear_helpers()
            yield iterator, fleet
            del iterator
        finally:
            patches.restore()
            fleet.close()
