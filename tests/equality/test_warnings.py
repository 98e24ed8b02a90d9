"""What torch warns of names the same line with stoker as without, as often as without."""

import warnings
from multiprocessing import resource_tracker

import pytest
import torch
from torch.utils.data import BatchSampler, DataLoader, IterableDataset, SequentialSampler
from torch.utils.data.dataloader import _MultiProcessingDataLoaderIter
from torchdata.stateful_dataloader import StatefulDataLoader

from stoker.config import Settings
from tests.equality.cases import Samples
from tests.equality.sides import QUIET, installed

OFF = Settings(quiet=True, off=True)

pytestmark = pytest.mark.filterwarnings("ignore:'set_vital' is deprecated:UserWarning")  # torchdata


def warned(loop, action):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter(action)
        warnings.filterwarnings("ignore", "'set_vital' is deprecated")  # of torchdata
        for _ in range(2):  # where a line has warned, it does not again
            loop()
    found = [(w.category, str(w.message), w.filename, w.lineno) for w in caught]
    # Python 3.12's, of a fork beside threads: stoker forks once where torch forks each worker.
    return [
        w for i, w in enumerate(found) if not i or w != found[i - 1] or "multi-threaded" not in w[1]
    ]


def compare(loop, *files, settings=QUIET):
    """files: that are named, without their folders."""
    for action in ("always", "default"):
        plain = warned(loop, action)
        with installed(settings):
            assert warned(loop, action) == plain
        named = {file.rpartition("/")[2] for _, _, file, _ in plain} - {"popen_fork.py"}
        assert named == set(files)


class Says(IterableDataset):
    """Says a length that is too long."""

    def __len__(self):
        return 2

    def __iter__(self):
        yield from range(3)

    def __repr__(self):
        return "Says"


@pytest.mark.parametrize("workers", [0, 2])
def test_a_length_that_is_too_long_names_the_loop(workers):
    loader = DataLoader(Says(), None, num_workers=workers)

    def loop():
        assert len(loader) == 2
        for _ in loader:
            pass

    compare(loop, "test_warnings.py")


def test_also_of_a_loader_that_is_left_to_torch():
    loader = DataLoader(Says(), None)

    def loop():
        assert len(loader) == 2
        batches = iter(loader)
        while next(batches, None) is not None:
            pass

    compare(loop, "test_warnings.py", settings=OFF)


@pytest.mark.parametrize("kind", [DataLoader, StatefulDataLoader])
def test_too_many_workers_name_torchs_line(kind, monkeypatch):
    loader = kind(Samples(4), num_workers=2)
    monkeypatch.setattr(torch._utils, "cpu_count", lambda: 1)
    file = "dataloader.py" if kind is DataLoader else "stateful_dataloader.py"
    compare(lambda: list(loader), file)


@pytest.mark.skipif(torch.accelerator.is_available(), reason="memory can be pinned here")
@pytest.mark.parametrize("kind", [DataLoader, StatefulDataLoader])
@pytest.mark.parametrize("workers", [0, 2])
def test_memory_that_cannot_be_pinned_names_torchs_line(kind, workers):
    loader = kind(Samples(4), num_workers=workers, pin_memory=True)
    file = "dataloader.py" if kind is DataLoader else "stateful_dataloader.py"
    compare(lambda: list(loader), file)


@pytest.mark.skipif(torch.accelerator.is_available(), reason="memory can be pinned here")
def test_also_of_an_iterator_that_is_made_by_its_name():
    loader = DataLoader(Samples(4), num_workers=2, pin_memory=True)
    compare(lambda: list(_MultiProcessingDataLoaderIter(loader)), "dataloader.py")


@pytest.fixture
def tracker():
    """multiprocessing's, which what is spawned shares."""
    was_running = resource_tracker._resource_tracker._fd is not None
    resource_tracker.ensure_running()
    yield
    if not was_running:
        resource_tracker._resource_tracker._stop()


class Refuses(Samples):
    def __reduce__(self):
        raise TypeError("cannot be pickled")


@pytest.mark.parametrize("dataset", [[(_ for _ in ())], Refuses(1)], ids=["generator", "refuses"])
def test_what_cannot_be_pickled_names_torchs_line(dataset, tracker):
    loader = DataLoader(dataset, num_workers=1, multiprocessing_context="spawn")

    def loop():
        with pytest.raises(Exception, match="pickle"):
            iter(loader)

    compare(loop, "dataloader.py")


class Warns(Samples):
    """Names whoever asks torch's loader for a batch."""

    def __getitem__(self, index):
        frames = 2
        frame = __import__("sys")._getframe(1)
        while frame.f_code.co_name != "__next__":
            frame, frames = frame.f_back, frames + 1
        warnings.warn("from a sample", stacklevel=frames + 1)
        return super().__getitem__(index)


class WarnsOfOrder(BatchSampler):
    def __iter__(self):
        warnings.warn("from a sampler", stacklevel=2)
        yield from super().__iter__()


class WarnsOfIterator(DataLoader):
    def _get_iterator(self):
        warnings.warn("from a loader", stacklevel=3)
        return super()._get_iterator()


def test_what_the_script_warns_of_names_its_own_lines():
    sampler = WarnsOfOrder(SequentialSampler(range(4)), 4, False)
    loaders = [
        WarnsOfIterator(Samples(4), batch_size=4),
        DataLoader(Samples(4), batch_sampler=sampler, num_workers=1),
        DataLoader(Samples(4), batch_sampler=sampler),
    ]

    def loop():
        for loader in loaders:
            for _ in loader:
                pass

    compare(loop, "test_warnings.py", "dataloader.py")


def test_a_dataset_that_names_who_asked_for_its_batch():
    loader = DataLoader(Warns(4), batch_size=4)

    def loop():
        for _ in loader:
            pass

    compare(loop, "test_warnings.py", settings=OFF)
