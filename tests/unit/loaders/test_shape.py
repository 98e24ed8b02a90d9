"""The tripwire: what the adapter takes from torchdata looks as it did in the version it was read in."""

import inspect
import os
import subprocess
import sys

import pytest

pytest.importorskip("torchdata.stateful_dataloader", reason="torchdata not installed")
import torchdata
from torchdata.stateful_dataloader import incremental_state, stateful_dataloader, worker

from stoker.intercept import patches
from stoker.intercept.eligible import KNOWN_TORCHDATA
from stoker.intercept.patches import PATCHES_OF_OTHERS

OURS = tuple(patch for group in PATCHES_OF_OTHERS.values() for patch in group)
Iter = stateful_dataloader._StatefulMultiProcessingDataLoaderIter
Incremental = incremental_state._IncrementalWorkerState

# Called or stood in for by loaders/stateful.py: function -> its parameters.
CALLED = {
    Iter.__init__: "self, loader, next_iter_state",
    Iter._reset: "self, loader, first_iter, prime_prefetch",
    Iter._get_main_state: "self",
    Iter._restore_main_state: "self, state_dict",
    Iter._take_snapshot: "self",
    Iter._update_snapshot: "self, snapshot_step, last_yielded_worker_id, num_workers, "
    "main_snapshot, worker_snapshots",
    Iter._update_worker_snapshot: "self, worker_key, state_dict",
    Iter._worker_key: "self, worker_id",
    Iter.state_dict: "self",
    Incremental.__init__: "self, initial_worker_state_dict",
    Incremental.generate_delta: "self, new_state_dict",
    Incremental.apply_delta: "self, delta_state_dict",
    worker._make_state_dict: "worker_id, dataset_kind, fetcher, dataset",
    worker.try_to_deserialize: "obj, state_dict",
}
# What those methods read and write of the iterator, which ours must have.
TOUCHED = {
    Iter._get_main_state: {
        "_num_workers", "_sampler_iter", "_index_sampler", "_sampler_iter_yielded",
        "_IterableDataset_len_called", "_shared_seed", "_base_seed",
    },
    Iter._take_snapshot: {
        "_main_snapshots", "_rcvd_idx", "_in_order", "_num_yielded", "_last_yielded_worker_id",
        "_num_workers", "_worker_snapshots", "_update_snapshot",
    },
    Iter.state_dict: {"_in_order", "_num_yielded", "_snapshot", "_finished"},
}  # fmt: skip


@pytest.fixture(autouse=True)
def undone():
    patches.restore()
    yield
    patches.restore()


def test_the_version_is_the_one_that_is_known():
    assert torchdata.__version__.startswith(f"{KNOWN_TORCHDATA}.")


@pytest.mark.parametrize("function", CALLED, ids=lambda function: function.__qualname__)
def test_a_function_takes_what_it_took(function):
    assert ", ".join(inspect.signature(function).parameters) == CALLED[function]


@pytest.mark.parametrize("function", TOUCHED, ids=lambda function: function.__qualname__)
def test_a_method_touches_of_the_iterator_what_it_touched(function):
    names = function.__code__.co_names
    attributes = {name for name in names if name.startswith("_") and name != name.upper()}
    assert attributes == TOUCHED[function]


@pytest.mark.parametrize("patch", OURS, ids=str)
def test_a_target_still_looks_as_known(patch):
    assert patch.is_known() and patch.why


@pytest.mark.parametrize("first", ["import torch.utils.data", "import torchdata"])
def test_the_class_is_patched_when_it_is_imported_and_no_finder_waits_for_it(first):
    program = (
        f"import sys; {first}\n"
        "import torch.utils.data\n"
        "assert all(type(f).__module__ != 'stoker.intercept.arm' for f in sys.meta_path)\n"
        "from torchdata.stateful_dataloader import StatefulDataLoader as Loader\n"
        "class Own(Loader[int], torch.utils.data.DataLoader): pass\n"
        "print(*(hasattr(f, '__wrapped__') for f in (Loader._get_iterator, Own.__iter__)))"
    )
    told = subprocess.check_output(
        [sys.executable, "-c", program], env=os.environ | {"STOKER_RUN": "1"}, text=True
    )
    assert told == "True True\n"


def test_installing_replaces_every_target_and_restoring_gives_back_the_identical_ones():
    before = [patch.target() for patch in OURS]
    patches.install(patches.Settings(quiet=True))
    assert [patch.target().__wrapped__ for patch in OURS] == before
    patches.restore()
    assert all(patch.target() is old for patch, old in zip(OURS, before, strict=True))


def test_another_version_stays_with_torchdata(monkeypatch, capsys):
    monkeypatch.setattr(torchdata, "__version__", "0.12.1")
    with pytest.warns(UserWarning, match="set_vital"):
        loader = stateful_dataloader.StatefulDataLoader([1, 2, 3], num_workers=1)
    patches.install(patches.Settings())
    iterator = iter(loader)
    assert type(iterator) is Iter
    del iterator, loader
    assert "torchdata 0.11 is supported, this is 0.12.1" in capsys.readouterr().err
