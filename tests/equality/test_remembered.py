"""Samples that are remembered: four epochs, plain and with the memory on, off and auditing, by hash.

Datasets that must not be remembered are left alone, and say why (impure.py).
"""

import os
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, RandomSampler, Subset

from stoker.config import Settings
from stoker.memory import phases
from stoker.memory.store import shelves, told_of
from tests.equality import impure, impure_helpers
from tests.equality.remembering import (
    AUDIT,
    KEPT,
    ON,
    damaging,
    epochs,
    killing,
    loader_of,
    place_of,
    rewrite,
)
from tests.equality.sides import both, installed, play


@pytest.fixture(autouse=True)
def fresh_shelf(monkeypatch):
    """Each test begins with a shelf of its own; nothing leaves too little to be gained."""
    monkeypatch.setattr(shelves, "_shelf", None)
    monkeypatch.setattr(phases, "MAX_LEFT", 1e9)


@pytest.fixture
def folder(tmp_path):
    for k in range(impure.NUM):
        (tmp_path / f"{k}.txt").write_text("x" * (k + 1))
    return tmp_path


@pytest.mark.parametrize("kind", impure.ALL, ids=lambda kind: kind.__name__)
def test_a_dataset_is_remembered_or_left_alone_and_its_batches_are_torchs(kind, folder):
    if kind in impure.VOLATILE:
        with installed(ON):
            play(loader_of(kind, folder), epochs, 2)
    else:
        both(loader_of(kind, folder), epochs, settings=ON)
    why, counts = place_of(kind)
    if kind.becomes == impure.KEPT:
        assert why == ""
        assert counts.num_hits > impure.NUM
    else:
        assert any(reason in why for reason in kind.becomes.split(" or ")), why
        assert counts.num_hits == counts.num_proven  # none was served
    assert counts.num_differed == 0


FEW = (
    impure.Pure, impure.ThenRandom, impure.OfAFile, impure.LargeInPlace, impure.LargeImageInPlace,
    impure.HeadInABranch,
)  # fmt: skip


@pytest.mark.parametrize(
    "kind",
    [kind if kind in FEW else pytest.param(kind, marks=pytest.mark.full) for kind in KEPT],
    ids=lambda kind: kind.__name__,
)
def test_an_audit_makes_every_sample_again(kind, folder):
    both(loader_of(kind, folder), epochs, settings=AUDIT)
    why, counts = place_of(kind)
    assert why == ""
    assert counts.num_hits == counts.num_checked > impure.NUM
    assert counts.num_differed == 0


def test_off_has_no_shelf(folder):
    both(loader_of(impure.Pure, folder), epochs, settings=Settings(quiet=True, cache="off"))
    assert shelves.own_shelf() is None


def test_a_full_shelf_serves_what_it_holds(folder):
    settings = Settings(quiet=True, cache="auto", cache_memory=20 * 256)
    both(loader_of(impure.Pure, folder), epochs, settings=settings)
    _, counts = place_of(impure.Pure)
    assert 0 < counts.num_stored < impure.NUM
    assert counts.num_hits > counts.num_stored
    assert shelves.own_shelf().used_nbytes() <= 20 * 256


def test_the_user_may_answer_for_compiled_code(folder):
    settings = ON._replace(cache_trust="another, markupsafe")
    both(loader_of(impure.CallsUnknownC, folder), epochs, settings=settings)
    why, counts = place_of(impure.CallsUnknownC)
    assert why == ""
    assert counts.num_hits > impure.NUM


@pytest.mark.parametrize("kind", [impure.OfFewBytes, impure.HardThenRandom])
def test_a_loader_without_workers_remembers_too(kind, folder):
    def make(workers):
        dataset = kind(folder)
        sampler = RandomSampler(dataset, replacement=True, num_samples=4 * impure.NUM)
        return DataLoader(dataset, 4, sampler=sampler, num_workers=workers)

    def run(loader):
        for _ in range(3):
            for batch in loader:
                yield batch
                for k in range(3):
                    impure.hard_work(k)  # while others make the next

    both(make, run, workers=0, settings=ON)
    why, counts = place_of(kind)
    assert why == ""
    assert counts.num_hits > impure.NUM


def test_what_costs_little_for_its_bytes_makes_room_for_what_costs_much(folder):
    budget_nbytes = 30 * (64 << 10)
    loaders = [loader_of(kind, folder) for kind in (impure.OfManyBytes, impure.OfFewBytes)]

    def make(workers):
        return [loader(workers) for loader in loaders]

    def run(pair):
        for _ in range(8):
            yield from pair[0]
        for _ in range(8):
            yield from pair[1]

    settings = Settings(quiet=True, cache_memory=budget_nbytes)
    both(make, run, settings=settings)
    many, few = place_of(impure.OfManyBytes)[1], place_of(impure.OfFewBytes)[1]
    assert many.num_hits > 30
    assert few.num_stored == impure.NUM
    assert few.num_hits > 2 * impure.NUM
    assert shelves.own_shelf().used_nbytes() <= budget_nbytes


@pytest.mark.parametrize("workers", [1, 3])
def test_living_workers_remember_too(workers, folder):
    make = loader_of(impure.ThenRandom, folder, persistent_workers=True)
    both(make, lambda loader: epochs(loader, 6), workers=workers, settings=ON)
    why, counts = place_of(impure.ThenRandom)
    assert why == ""
    assert counts.num_hits > impure.NUM


SURE = [kind for kind in impure.ALL if kind not in impure.VOLATILE]


@pytest.mark.parametrize(
    "kind",
    [kind if kind in FEW else pytest.param(kind, marks=pytest.mark.full) for kind in SURE],
    ids=lambda kind: kind.__name__,
)
def test_living_workers_that_make_the_same_samples_each_time(kind, folder):
    """As of a validation set: nobody else ever makes them."""
    make = loader_of(kind, folder, persistent_workers=True, shuffle=False)
    both(make, lambda loader: epochs(loader, 6), settings=ON)
    why, counts = place_of(kind)
    assert counts.num_differed == 0
    if kind in FEW:
        assert why == ""
        assert counts.num_hits > 2 * impure.NUM


@pytest.mark.parametrize("keeps_size", [False, True])
def test_a_file_that_is_rewritten_is_read_again(keeps_size, folder):
    def run(loader):
        for epoch in range(5):
            for k in range(epoch, impure.NUM, 7):
                rewrite(folder / f"{k}.txt", "abcde"[epoch], keeps_size)
            yield from loader

    def fresh(loader):
        for k in range(impure.NUM):
            (folder / f"{k}.txt").write_text("x" * (k + 1))
        yield from run(loader)

    both(loader_of(impure.OfAFile, folder), fresh, settings=ON)
    assert place_of(impure.OfAFile)[1].num_hits > impure.NUM


@pytest.mark.parametrize("kind", impure.BESIDES)
def test_a_file_that_changes_without_a_trace_where_most_samples_look(kind, folder):
    """In place, and with the times that it had: the samples that are of it are made again, the others kept."""

    def run(loader):
        besides = Path(loader.dataset.besides)
        for epoch in range(8):
            if epoch % 4 == 0:
                times = besides.stat().st_atime_ns, besides.stat().st_mtime_ns
                with besides.open("r+b") as file:
                    file.seek(impure.MIDDLE)
                    file.write(bytes([epoch]))
                os.utime(besides, ns=times)
            yield from loader

    both(loader_of(kind, folder, shuffle=False), run, settings=ON)
    why, counts = place_of(kind)
    assert why == ""
    assert (
        counts.num_hits > impure.NUM or kind is impure.ByMapping
    )  # which is another state each time


def test_a_file_that_comes_after_its_sample_was_kept_is_read(folder):
    """Samples that were watched have had theirs."""
    missing = [folder / f"{k}.txt" for k in range(impure.NUM - 4, impure.NUM)]

    def run(loader):
        for path in missing:
            path.unlink(missing_ok=True)
        for epoch in range(8):
            if epoch > 4:
                missing[epoch - 5].write_text("here")
            yield from loader

    both(loader_of(impure.LooksWhetherThere, folder, shuffle=False), run, settings=ON)
    why, counts = place_of(impure.LooksWhetherThere)
    assert why == ""
    assert counts.num_hits > 4 * impure.NUM


class InTuples:
    """A sampler of indices that are tuples."""

    def __iter__(self):
        for k in torch.randperm(impure.NUM).tolist():
            yield k, 1 + k % 3

    def __len__(self):
        return impure.NUM


def subset_of_numpys(dataset):
    return Subset(dataset, np.random.permutation(impure.NUM))


@pytest.mark.parametrize(
    ("around", "sampler"), [(subset_of_numpys, None), (lambda dataset: dataset, InTuples())]
)
def test_an_index_may_be_numpys_or_a_tuple(around, sampler, folder):
    def make(workers):
        dataset = around(impure.OfTwo(folder))
        return DataLoader(dataset, 4, sampler is None, sampler, num_workers=workers)

    both(make, epochs, settings=ON)
    why, counts = place_of(impure.OfTwo)
    assert why == ""
    assert counts.num_hits > impure.NUM


def test_numpys_indices_are_not_tuples():
    told = [
        told_of(index)
        for index in (3, np.int64(3), np.int32(3), ("int64", 3), (3,), True, "3", 3.0)
    ]
    assert len(set(map(repr, told))) == len(told)
    assert told_of(np.timedelta64(3, "D")) is None
    assert told_of((1, [2])) is None


def test_an_index_that_cannot_be_told_is_named(folder):
    def make(workers):
        dataset = Subset(impure.Pure(folder), torch.arange(impure.NUM))
        return DataLoader(dataset, 4, num_workers=workers)

    both(make, epochs, settings=ON)
    assert place_of(impure.Pure)[0] == "is asked for a sample by a Tensor"


def test_an_attribute_that_the_script_changes_between_epochs_is_another_state(folder):
    def run(loader):
        for epoch in range(6):
            loader.dataset.scale = 1.0 + epoch % 2
            yield from loader

    both(loader_of(impure.Scaled, folder), run, settings=ON)
    assert place_of(impure.Scaled)[1].num_hits > impure.NUM


def test_a_compose_that_the_script_changes_between_epochs_is_another_state(folder):
    def run(loader):
        for epoch in range(8):
            added = [impure.Add(5 + epoch % 2), impure.AddRandom(1)]
            if epoch < 4:
                loader.dataset.transform.transforms[:] = added
            else:
                loader.dataset.transform = type(loader.dataset.transform)(added)
            yield from loader

    both(loader_of(impure.HeadInABranch, folder), run, settings=ON)
    why, counts = place_of(impure.HeadInABranch)
    assert why == ""
    assert counts.num_hits > impure.NUM


def test_a_function_that_the_script_replaces_between_epochs_is_another_state(folder, monkeypatch):
    def run(loader):
        for epoch in range(8):
            now = impure_helpers.subtracted if epoch % 4 > 1 else impure_helpers.added
            monkeypatch.setattr(impure_helpers, "replaced", now)
            yield from loader

    both(loader_of(impure.ReplacedOnce, folder), run, settings=ON)
    why, counts = place_of(impure.ReplacedOnce)
    assert why == ""
    assert counts.num_hits > impure.NUM


def test_an_environment_variable_that_the_script_changes_is_another_state(folder, monkeypatch):
    def run(loader):
        for epoch in range(6):
            monkeypatch.setenv("STOKER_TEST_SCALE", str(1 + epoch % 2))
            yield from loader

    both(loader_of(impure.ReadsEnvironment, folder), run, settings=ON)
    assert place_of(impure.ReadsEnvironment)[1].num_hits > impure.NUM


def test_a_collate_function_may_change_its_samples(folder):
    def collate(samples):
        for sample in samples:
            sample += 1
        return torch.stack(samples)

    both(loader_of(impure.Pure, folder, collate_fn=collate), epochs, settings=ON)
    assert place_of(impure.Pure)[1].num_hits > impure.NUM


def test_subsets_and_concatenations_share_what_they_hold(folder):
    def make(workers):
        whole = impure.Pure(folder)
        parts = torch.utils.data.Subset(whole, range(0, 40, 2)), impure.OwnGenerator(folder)
        return DataLoader(
            torch.utils.data.ConcatDataset(parts), batch_size=4, shuffle=True, num_workers=workers
        )

    both(make, lambda loader: epochs(loader, 6), settings=ON)
    assert place_of(impure.Pure)[1].num_hits > 20
    assert place_of(impure.OwnGenerator)[1].num_hits > impure.NUM


def test_a_tensor_that_the_loop_shares_with_workers_counts_as_it_is(folder):
    def run(loader):
        for epoch in range(8):
            yield from loader
            loader.dataset.value.fill_(1.0 + (epoch == 4))

    make = loader_of(impure.SharedTensor, folder, persistent_workers=True)
    both(make, run, settings=ON)
    why, counts = place_of(impure.SharedTensor)
    assert (why, counts.num_differed) == ("", 0)
    assert counts.num_hits > 3 * impure.NUM


def test_what_a_sample_tells_the_loop_by_a_shared_tensor_is_told_each_time(folder):
    def run(loader):
        for _ in range(8):
            yield from loader
            yield loader.dataset.told.clone()
            loader.dataset.told.zero_()

    both(loader_of(impure.TellsByASharedTensor, folder, persistent_workers=True), run, settings=ON)


# -- what may happen to the shelf, and who may watch -------------------------------------------------


@pytest.mark.parametrize("kind", [impure.Pure, impure.ThenRandom, impure.OfAFile])
def test_a_shelf_that_is_damaged_between_epochs_changes_no_batch(kind, folder, monkeypatch):
    both(loader_of(kind, folder), damaging(monkeypatch), settings=ON)


def test_workers_that_are_killed_while_they_write_change_no_batch(folder):
    make = loader_of(impure.ThenRandom, folder)
    both(make, killing, plain_run=lambda loader: epochs(loader, 6), settings=ON)
    assert place_of(impure.ThenRandom)[1].num_hits > impure.NUM


def trace(worker_id):
    sys.settrace(lambda *_: None)


def test_a_dataset_that_is_traced_runs_itself(folder):
    both(loader_of(impure.Pure, folder, worker_init_fn=trace), epochs, settings=ON)
    assert place_of(impure.Pure)[1].num_timed == 0


@pytest.mark.parametrize("kind", [impure.FailsLate, impure.FailsInside])
def test_a_traceback_shows_the_datasets_lines_and_nothing_of_ours(kind, folder):
    def told(error):
        lines = str(error).splitlines()
        frames = [k for k, line in enumerate(lines) if impure.__file__ in line]
        assert not [line for line in lines if "stoker/memory" in line]
        return [lines[0], *(line for k in frames for line in lines[k : k + 2])]

    def run(loader):
        for _ in range(6):
            iterator = iter(loader)
            for _ in range(len(loader) + 1):
                try:
                    yield next(iterator)
                except StopIteration:
                    yield "end"
                except LookupError as error:
                    yield told(error)
            iterator._shutdown_workers()

    plain, _ = both(loader_of(kind, folder), run, settings=ON)
    assert len(set(plain.digests)) > 12
    assert place_of(kind)[1].num_hits > impure.NUM
