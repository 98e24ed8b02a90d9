"""Samples of a loader that torch keeps are counted exactly, and its sampler is asked for no more."""

import contextlib

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from stoker.intercept import meter, run
from tests.equality.sides import installed


class Numbers(Dataset):
    def __init__(self, fails_at=-1):
        self.fails_at = fails_at

    def __len__(self):
        return 1001

    def __getitem__(self, index):
        if index == self.fails_at:
            raise ValueError(index)
        return torch.tensor(index)


class Batches:
    """A batch sampler that tells how often it was asked, and may fail."""

    def __init__(self, fails_at=-1):
        self.num_asked, self.fails_at = 0, fails_at

    def __iter__(self):
        for k in range(200):
            self.num_asked += 1
            if k == self.fails_at:
                raise ValueError(k)
            yield range(k, k + 1 + k % 3) if k % 2 else list(range(k, k + 2))


def took(loader, num=1 << 30):
    """Samples that came, until it ended or failed."""
    found = 0
    with contextlib.suppress(ValueError):
        for k, batch in enumerate(loader):
            found += batch.numel()
            if k == num:
                break
    return found


@pytest.fixture(params=["at each batch", "now and then"])
def looks(request, monkeypatch):
    if request.param == "at each batch":
        monkeypatch.setattr(meter, "LOOK_EVERY_S", 0.0)


@pytest.mark.usefixtures("looks")
@pytest.mark.parametrize(
    "make",
    [
        lambda: (DataLoader(Numbers(), batch_size=4), {}),
        lambda: (DataLoader(Numbers(), batch_size=4), {"num": 77}),
        lambda: (DataLoader(Numbers(), batch_size=None), {}),
        lambda: (DataLoader(Numbers(), batch_sampler=Batches()), {}),
        lambda: (DataLoader(Numbers(), batch_sampler=Batches(fails_at=90)), {}),
        lambda: (DataLoader(Numbers(fails_at=401), batch_size=4), {}),
    ],
    ids=["plain", "left early", "single", "batch sampler", "sampler fails", "dataset fails"],
)
def test_samples_are_counted_exactly(make):
    loader, how = make()
    with installed():
        before = list(run.recorder()._loaders)
        found = sum(took(loader, **how) for _ in range(3))
        (record,) = (each for each in run.recorder()._loaders if each not in before)
    assert not record.offloaded and record.num_samples == found


@pytest.mark.usefixtures("looks")
def test_the_sampler_is_asked_as_often_as_by_torch():
    ours, plain = Batches(), Batches()
    took(DataLoader(Numbers(), batch_sampler=plain), num=120)
    with installed():
        took(DataLoader(Numbers(), batch_sampler=ours), num=120)
    assert ours.num_asked == plain.num_asked == 121


@pytest.mark.usefixtures("looks")
def test_a_loop_goes_on_after_its_dataset_failed_as_under_torch():
    def play():
        iterator = iter(DataLoader(Numbers(fails_at=401), batch_size=4))
        found = []
        while True:
            try:
                found.append(next(iterator).tolist())
            except ValueError:
                found.append("failed")
            except StopIteration:
                return found

    plain = play()
    with installed():
        assert play() == plain
