"""A signal handler of the script's ends a next() that waits, and the script asks again."""

import signal
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from tests.equality.sides import both, installed

AFTER_S = 0.03


class Waits(Dataset):
    """The first sample of every batch of 4 comes only after the trainer was interrupted."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __len__(self) -> int:
        return 48

    def __getitem__(self, index: int) -> tuple[int, torch.Tensor]:
        while index % 4 == 0 and not (self.folder / str(index // 4)).exists():
            time.sleep(0.001)
        return index, torch.rand(3)


def interrupt(signum: int, frame: object) -> None:
    raise TimeoutError


def asked_again(made: tuple[DataLoader, Path]) -> Iterator[Any]:
    loader, folder = made
    num_interrupts = 0
    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        iterator = iter(loader)
        for k in range(len(loader)):
            while True:
                try:
                    if not (folder / str(k)).exists():
                        signal.setitimer(signal.ITIMER_REAL, AFTER_S)
                    batch = next(iterator)
                    break
                except TimeoutError:
                    num_interrupts += 1
                    (folder / str(k)).touch()
            yield batch
        assert num_interrupts == len(loader)
        yield len(list(iterator))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("persistent", [False, True])
def test_a_next_that_was_interrupted_while_it_waited_loses_nothing(tmp_path, persistent):
    numbers = iter(range(2))

    def make(num_workers: int) -> tuple[DataLoader, Path]:
        folder = tmp_path / str(next(numbers))
        folder.mkdir()
        options: dict[str, Any] = {"num_workers": num_workers, "persistent_workers": persistent}
        return DataLoader(Waits(folder), 4, **options), folder

    both(partial(make), asked_again)


def test_an_end_that_was_interrupted_while_it_waited_leaves_nothing_behind(tmp_path):
    """The workers make samples that come only afterwards."""
    loader = DataLoader(Waits(tmp_path), 4, num_workers=2)
    with installed():
        iterator = iter(loader)
        before = signal.signal(signal.SIGALRM, interrupt)
        signal.setitimer(signal.ITIMER_REAL, AFTER_S)
        with pytest.raises(TimeoutError):
            iterator._shutdown_workers()
        signal.signal(signal.SIGALRM, before)
        for k in range(len(loader)):
            (tmp_path / str(k)).touch()
