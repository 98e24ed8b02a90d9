"""Iterables that can save their own state: a replacement goes on from it, if it does so rightly.

Every dataset logs what it makes, so that the cases can tell a worker that went on from one that
fetched everything again.
"""

import os
import random
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from stoker.worker import saved
from tests.equality.cases import DRAWS
from tests.equality.sides import both

pytestmark = pytest.mark.forks

NUM_SAMPLES = 160  # of the dataset
BATCH_SIZE = 2
KILLED_AFTER = 30  # batches


def note(log: Path | None) -> None:
    """One byte more, whichever process it comes from."""
    if log is not None:
        fd = os.open(log, os.O_CREAT | os.O_APPEND | os.O_WRONLY)
        os.write(fd, b".")
        os.close(fd)


class Saving(IterableDataset):
    """Worker w gives samples w, w + W, ... and says where it is. `log`: a byte a sample."""

    def __init__(self, log: Path | None = None) -> None:
        self.log, self.position = log, 0
        self.draws = [DRAWS[name] for name in ("random", "numpy", "torch")]

    def __iter__(self) -> Iterator[Any]:
        info = get_worker_info()
        w, num = (0, 1) if info is None else (info.id, info.num_workers)
        while self.position < NUM_SAMPLES // num:
            self.position += 1
            yield self.made(w + num * (self.position - 1))

    def made(self, index: int) -> Any:
        note(self.log)
        return torch.tensor([index, *(value for draw in self.draws for value in draw(self))])

    def state_dict(self) -> dict[str, Any]:
        return {"position": self.position}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.position = state["position"]


class _Iterator:
    """An iterator with a state of its own."""

    def __init__(self, dataset: Saving) -> None:
        info = get_worker_info()
        self.dataset, self.position = dataset, 0
        self.w, self.num = (0, 1) if info is None else (info.id, info.num_workers)

    def __iter__(self) -> "_Iterator":
        return self

    def __next__(self) -> Any:
        if self.position >= NUM_SAMPLES // self.num:
            raise StopIteration
        self.position += 1
        return self.dataset.made(self.w + self.num * (self.position - 1))

    def state_dict(self) -> dict[str, Any]:
        return {"at": torch.tensor(self.position)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.position = int(state["at"])


class SavingIterator(Saving):
    """The dataset has no state, its iterator has."""

    state_dict = load_state_dict = None

    def __iter__(self) -> Iterator[Any]:
        return _Iterator(self)


class Itself(Saving):
    """Its own iterator."""

    def __iter__(self) -> Iterator[Any]:
        self.own = super().__iter__()
        return self

    def __next__(self) -> Any:
        return next(self.own)

    def state_dict(self) -> dict[str, Any]:
        return {"position": self.position}


class DrawsInStateDict(Saving):
    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {"drawn": (random.random(), torch.rand(1))}


class LosesItsBuffer(Saving):
    """As Hugging Face's: what a shuffle buffer holds is not in the state."""

    def __iter__(self) -> Iterator[Any]:
        held: list[Any] = []
        for sample in super().__iter__():
            held.append(sample)
            if len(held) > 4:
                yield held.pop(random.randrange(5))
        yield from held


class LosesACount(Saving):
    """What came before shows in later samples."""

    count = 0

    def made(self, index: int) -> Any:
        self.count += 1
        return torch.cat([super().made(index), torch.tensor([self.count // 4])])


class FailsToLoad(Saving):
    def load_state_dict(self, state: dict[str, Any]) -> None:
        raise RuntimeError("not today")


class FailsToSave(Saving):
    def state_dict(self) -> dict[str, Any]:
        raise RuntimeError("not today")


class WantsArguments(Saving):
    """As litdata's and mosaicml's."""

    def state_dict(self, num_samples: int) -> dict[str, Any]:
        return {"position": num_samples}


class SavesWhatCannotBePickled(Saving):
    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {"itself": (_ for _ in ())}


class Weights(Saving, torch.nn.Module):
    """A module's `state_dict` holds its weights, and not where it is."""

    def __init__(self, log: Path | None = None) -> None:
        torch.nn.Module.__init__(self)
        self.weight = torch.nn.Parameter(torch.ones(2))
        super().__init__(log)

    def __iter__(self) -> Iterator[Any]:
        for _ in range(NUM_SAMPLES // 2):  # of two workers
            yield self.made(0)

    state_dict = torch.nn.Module.state_dict
    load_state_dict = torch.nn.Module.load_state_dict


class AsksItsSettings(Saving):
    """A name that it does not know is an error of its own."""

    state_dict = property(lambda self: self.settings["state_dict"])
    settings: ClassVar = {}


class DiesOfItsState(Saving):
    def load_state_dict(self, state: dict[str, Any]) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


class LeavesForItsState(Saving):
    def load_state_dict(self, state: dict[str, Any]) -> None:
        raise SystemExit(3)


class SavesMuch(Saving):
    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {"much": bytes(saved.MAX_STATE_NBYTES)}


GOES_ON = [Saving, SavingIterator, Itself, DrawsInStateDict]
STARTS_AGAIN = [
    LosesItsBuffer, LosesACount, FailsToLoad, FailsToSave, WantsArguments, SavesWhatCannotBePickled,
    Weights, AsksItsSettings, DiesOfItsState, LeavesForItsState, SavesMuch,
]  # fmt: skip


@pytest.fixture(autouse=True)
def soon(monkeypatch):
    monkeypatch.setattr(saved, "FIRST_SAVE_S", 0.0)
    monkeypatch.setattr(saved, "SAVE_EVERY_S", 0.0)
    monkeypatch.setattr(saved, "SAVE_FRAC", 1e9)


def make(
    kind: Callable[[Path | None], Any], log: Path | None, num_workers: int, **how: Any
) -> DataLoader:
    return DataLoader(kind(log), BATCH_SIZE, num_workers=num_workers, **how)


def killed(loader: DataLoader, after: tuple[int, ...] = (KILLED_AFTER,), num: int = 1) -> Any:
    for _ in range(num):
        iterator = iter(loader)
        for k, batch in enumerate(iterator, start=1):
            yield batch
            for worker in iterator._workers if k in after else ():
                with suppress(ProcessLookupError):  # killed just now: it has no successor yet
                    os.kill(worker.pid, signal.SIGKILL)


def num_made(kind: Callable[[Path | None], Any], log: Path, **how: Any) -> int:
    """Samples, of two workers that are killed after KILLED_AFTER batches; the batches are equal."""
    both(
        partial(make, kind, log),
        partial(killed, **how),
        plain_loader=partial(make, kind, None),
        plain_run=partial(killed, after=()),
        workers=2,
    )
    return log.stat().st_size


@pytest.mark.few(2)
@pytest.mark.parametrize("kind", GOES_ON)
def test_a_replacement_goes_on_from_the_saved_state(kind, tmp_path):
    more = num_made(kind, tmp_path / "log") - NUM_SAMPLES
    # What each worker had made since its state, and had in flight; not the 60 samples before.
    assert 0 < more < 2 * KILLED_AFTER


@pytest.mark.few(4)
@pytest.mark.parametrize("kind", STARTS_AGAIN)
def test_a_state_that_does_not_bring_back_everything_is_not_gone_on_from(kind, tmp_path):
    assert num_made(kind, tmp_path / "log") >= NUM_SAMPLES + BATCH_SIZE * KILLED_AFTER


@pytest.mark.few(1)
@pytest.mark.parametrize("is_shuffled", [False, True])
def test_hugging_faces_datasets(is_shuffled, tmp_path):
    """Their state is all there is, but for a shuffle buffer's."""
    datasets = pytest.importorskip("datasets", reason="Hugging Face's datasets not installed")

    def stream(log):
        def noted(row):
            note(log)
            return row

        table = datasets.Dataset.from_dict({"number": list(range(NUM_SAMPLES))})
        rows = table.to_iterable_dataset(num_shards=4).map(noted)
        return rows.shuffle(seed=7, buffer_size=10) if is_shuffled else rows

    more = num_made(stream, tmp_path / "log") - NUM_SAMPLES
    assert (more >= BATCH_SIZE * KILLED_AFTER) == is_shuffled


@pytest.mark.away_by_default
@pytest.mark.parametrize("kind", [Saving, LosesItsBuffer])
def test_many_deaths(kind, tmp_path):
    num_made(kind, tmp_path / "log", after=(1, 7, 8, 30, 52))


def test_a_worker_that_dies_while_it_is_brought_back(tmp_path):
    """To load its state may be why: the next one does without."""

    class DiesOnce(Saving):
        def load_state_dict(self, state):
            if not (tmp_path / "died").exists():
                (tmp_path / "died").touch()
                os.kill(os.getpid(), signal.SIGKILL)
            super().load_state_dict(state)

    num_made(DiesOnce, tmp_path / "log")
    assert (tmp_path / "died").exists()


def test_persistent_workers_fetch_from_the_start(tmp_path):
    """Else their next epoch would begin where the state was."""

    class FromTheState(Saving):
        begin = 0

        def __iter__(self):
            self.position = self.begin
            return super().__iter__()

        def load_state_dict(self, state):
            self.begin = state["position"]

    both(
        partial(make, FromTheState, None, persistent_workers=True),
        partial(killed, num=2),
        plain_run=partial(killed, after=(), num=2),
        workers=2,
    )


def test_short_work_is_never_saved(tmp_path, monkeypatch):
    monkeypatch.undo()
    kind = type("Told", (Saving,), {"state_dict": lambda self: (tmp_path / "asked").touch()})
    num_made(kind, tmp_path / "log")
    assert not (tmp_path / "asked").exists()
