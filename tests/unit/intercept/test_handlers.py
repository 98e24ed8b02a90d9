"""What a signal handler of the script's raises while a loader is looked at is the script's."""

import signal
from collections.abc import Iterator
from typing import Any

import pytest
from torch.utils.data import DataLoader

from stoker import speak
from stoker.intercept import loader
from tests.equality.sides import installed


def interrupt(signum: int, frame: object) -> None:
    raise TimeoutError


def interrupted(*values: Any) -> None:
    signal.raise_signal(signal.SIGUSR1)


@pytest.fixture(autouse=True)
def handler() -> Iterator[None]:
    before = signal.signal(signal.SIGUSR1, interrupt)
    yield
    signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize("what", ["_why_not_now", "_looks", "_noted"])
@pytest.mark.parametrize("num_workers", [0, 2])
def test_it_comes_out_of_iter(what, num_workers, monkeypatch):
    with installed():
        monkeypatch.setattr(loader, what, interrupted)
        with pytest.raises(TimeoutError):
            iter(DataLoader([1, 2, 3], num_workers=num_workers))
        monkeypatch.undo()
        assert len(list(DataLoader([1, 2, 3], num_workers=num_workers))) == 3


def test_it_is_not_taken_for_ours_while_a_module_of_ours_is_imported():
    def exec_module() -> None:
        signal.raise_signal(signal.SIGUSR1)

    with pytest.raises(TimeoutError) as raised:
        exec_module()
    raised.value.with_traceback(raised.tb.tb_next)  # but for this test's own frame
    assert speak.raised_by_handler(raised.value)
