"""A worker's death is noticed although what its dataset started holds a copy of its socket."""

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from multiprocessing import resource_tracker
from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from tests.conftest import wait_until_gone
from tests.equality.deaths import Deaths
from tests.equality.sides import both

LIBC = ctypes.CDLL(None)
SLEEP = "import os, signal, sys; open(sys.argv[1], 'a').write(f'{os.getpid()} '); signal.pause()"


def c_fork(pids: Path) -> None:
    """As a library does it: no hook of Python's runs."""
    with (pids / "c").open("a") as file:
        if (pid := LIBC.fork()) == 0:
            LIBC.pause()
            LIBC._exit(0)
        file.write(f"{pid} ")


def subprocess_with_all_descriptors(pids: Path) -> None:
    subprocess.Popen([sys.executable, "-S", "-c", SLEEP, str(pids / "s")], close_fds=False)


def shell(pids: Path) -> None:
    os.system(f"sleep 1000 & echo $! >> {pids / 'sh'}")


STARTS = {f.__name__: f for f in (c_fork, subprocess_with_all_descriptors, shell)}


class Starter(Dataset):
    """Sample 4 starts something that lives on; sample 5, of the same worker, kills it, twice."""

    def __init__(self, start: str, pids: Path, deaths: Deaths) -> None:
        self.start, self.pids, self.deaths = start, pids, deaths

    def __len__(self) -> int:
        return 16

    def __getitem__(self, index: int) -> torch.Tensor:
        if index == 4 and self.deaths.schedule:
            STARTS[self.start](self.pids)
        self.deaths.maybe(index)
        return torch.full((3,), index)


@pytest.fixture(scope="module")
def tracker() -> Iterator[None]:
    """A process of multiprocessing's that spawned ones share, and that stays."""
    resource_tracker.ensure_running()
    yield
    resource_tracker._resource_tracker._stop()


@pytest.fixture
def pids(tmp_path: Path) -> Iterator[Path]:
    """Where started processes are written down; they are ended."""
    folder = tmp_path / "pids"
    folder.mkdir()
    yield folder
    started = [int(pid) for file in folder.iterdir() for pid in file.read_text().split()]
    for pid in started:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    wait_until_gone(frozenset(started), 30)  # the trainer sees by pipes which memory they saw


def loader(num_workers: int, dataset: Dataset, method: str) -> DataLoader:
    return DataLoader(dataset, 2, num_workers=num_workers, multiprocessing_context=method)


def check(start: str, pids: Path, folder: Path, method: str) -> None:
    folder.mkdir()
    mortal = Starter(start, pids, Deaths(folder, {5: 2}))
    immortal = Starter(start, pids, Deaths(folder, {}))
    both(
        partial(loader, dataset=mortal, method=method),
        lambda made: made,
        plain_loader=partial(loader, dataset=immortal, method=method),
    )
    assert mortal.deaths.count() == 2


@pytest.mark.parametrize("start", STARTS)
def test_a_worker_that_dies_is_replaced_whoever_holds_its_socket(start, pids, tmp_path):
    check(start, pids, tmp_path / "deaths", "fork")


@pytest.mark.full
def test_so_is_a_spawned_one(tracker, pids, tmp_path):
    check("subprocess_with_all_descriptors", pids, tmp_path / "deaths", "spawn")
