"""G4, where stoker itself fails: that loader is torch's; and an error of the script's stays one.

Which pieces can fail is tests/process/test_breaking.py's; here is what must be so when one does.
"""

import sys
from functools import partial

import pytest
import torch
import torchdata
from torch.utils.data import DataLoader, Sampler
from torch.utils.data.dataloader import _MultiProcessingDataLoaderIter
from torchdata.stateful_dataloader import StatefulDataLoader

from stoker.config import Settings
from stoker.intercept import eligible, run
from stoker.loaders.driver import Driver
from stoker.loaders.multiprocess import StreamIterator
from stoker.scheduler import history
from stoker.worker.loop import Worker
from tests.equality.cases import Samples
from tests.equality.sides import QUIET, assert_equal, installed, play

pytestmark = pytest.mark.filterwarnings("ignore:'set_vital' is deprecated:UserWarning")  # torchdata

SPACE = {"__name__": "stoker.broken"}  # as if the bug were in a file of ours
exec("def broken(*a, **k): raise RuntimeError('a bug of ours')", SPACE)
broken = SPACE["broken"]


class Asked(Sampler):
    """Draws at each `iter()`, and tells how often it was asked."""

    def __init__(self, num: int) -> None:
        self.num, self.num_asked = num, 0

    def __len__(self):
        return self.num

    def __iter__(self):
        self.num_asked += 1
        return iter(torch.randint(self.num, (self.num,)).tolist())


def loader_of(num_workers, **options):
    return DataLoader(Samples(20), 3, sampler=Asked(20), num_workers=num_workers, **options)


def epochs(loader):
    for _ in range(2):
        yield from loader
        yield torch.tensor(loader.sampler.num_asked)


def reasons():
    return [record.reasons for record in run.recorder()._loaders]


PIECES = [
    (Driver, "__init__"),  # before anything was drawn from the sampler
    (Driver, "_begin"),  # workers are forked
    (StreamIterator, "_fill"),
    (Driver, "draw"),
    (Driver, "wait_next"),  # the script has the iterator
    pytest.param(Worker, "set_up", marks=pytest.mark.forks),  # in the worker
]


@pytest.mark.parametrize("is_kept", [False, True], ids=["anew", "persistent"])
@pytest.mark.parametrize(
    ("owner", "name"), PIECES, ids=lambda part: getattr(part, "__name__", part)
)
def test_a_loader_of_which_a_piece_fails_is_torchs_exactly(
    owner, name, is_kept, monkeypatch, capfd
):
    make = partial(loader_of, persistent_workers=is_kept)
    expected = play(make, epochs, 2)
    monkeypatch.setattr(owner, name, broken)
    monkeypatch.setattr(history, "MAX_PAUSE_S", 0.02)  # between ten workers that cannot be set up
    with installed(Settings()):
        got = play(make, epochs, 2)
        (told,) = reasons()
    assert_equal(expected, got)
    said = [line for line in capfd.readouterr().err.splitlines() if line.startswith("stoker: ")]
    left = [line for line in said if "stays with torch: " in line]
    assert len(told) == 1 and "fail" in told[0] + "".join(left)
    assert len(left) == 1 and told[0] in left[0]


@pytest.mark.parametrize("name", ["_begin", "draw", "wait_next"])
def test_a_stateful_loader_of_which_a_piece_fails_is_torchdatas(name, monkeypatch):
    def states(loader):
        for batch in loader:
            yield batch, loader.state_dict()

    def make(num_workers):
        return StatefulDataLoader(Samples(20), 3, shuffle=True, num_workers=num_workers)

    expected = play(make, states, 2)
    monkeypatch.setattr(Driver, name, broken)
    with installed(QUIET):
        assert_equal(expected, play(make, states, 2))


def test_an_iterator_that_is_made_by_its_name_is_torchs_where_stoker_fails(monkeypatch):
    def by_name(loader):
        yield from _MultiProcessingDataLoaderIter(loader)

    expected = play_by_name(by_name)
    monkeypatch.setattr(Driver, "_begin", broken)
    with installed(QUIET):
        assert list(map(str, play_by_name(by_name))) == list(map(str, expected))


def play_by_name(loop):
    torch.manual_seed(5)
    return [*loop(loader_of(2)), torch.get_rng_state().sum()]


class Refusing(Asked):
    def __iter__(self):
        super().__iter__()
        raise KeyError("the script's")


def test_an_error_of_the_scripts_sampler_arrives_once_and_says_nothing(capfd):
    loader = DataLoader(Samples(20), 3, sampler=Refusing(20), num_workers=2)
    with installed(Settings()):
        with pytest.raises(KeyError, match="the script's"):
            iter(loader)
    assert loader.sampler.num_asked == 1  # torch asks for a second time only after that
    assert "stays with torch" not in capfd.readouterr().err


class Answering(DataLoader):
    def __getattr__(self, name):
        raise ValueError(name)


def test_a_loader_that_answers_getattr_with_an_error_of_its_own_is_carried(monkeypatch):
    expected = [batch.sum().item() for batch in DataLoader(range(9), 3)]
    with installed(QUIET):
        loader = Answering(range(9), 3, num_workers=1)
        assert [batch.sum().item() for batch in loader] == expected


@pytest.mark.parametrize("version", ["2.13.0a0+git123", "2.8", "10.0.1+cu130"])
def test_versions_of_torch_are_read(version, monkeypatch):
    monkeypatch.setattr(torch, "__version__", version)
    assert eligible.why_not_here.__wrapped__() == ""


@pytest.mark.parametrize("version", ["2.7.1", "unknown", "", None, "v3"])
def test_what_is_no_known_version_of_torch_is_a_reason(version, monkeypatch):
    monkeypatch.setattr(torch, "__version__", version)
    assert "is supported, this is" in eligible.why_not_here.__wrapped__()


@pytest.mark.parametrize("half", ["no version", "no class"])
def test_a_torchdata_that_is_half_installed_is_a_reason(half, monkeypatch, capfd):
    if half == "no version":
        monkeypatch.delattr(torchdata, "__version__")
    else:
        monkeypatch.delattr(sys.modules["torchdata.stateful_dataloader"], "StatefulDataLoader")
    with installed(Settings()):
        loader = StatefulDataLoader(Samples(20), 3, num_workers=1)
        assert len(list(loader)) == 7
    said = [line for line in capfd.readouterr().err.splitlines() if "stays with torchdata" in line]
    assert len(said) == 1
