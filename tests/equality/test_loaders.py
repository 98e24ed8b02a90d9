"""Every argument of DataLoader does what it does under torch."""

import copy
import random
import warnings
from functools import partial
from multiprocessing import resource_sharer

import numpy as np
import pytest
import torch
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler

from stoker.config import Settings
from tests.equality.cases import Case, Samples, make_loader, step, three_epochs
from tests.equality.sides import both, installed, is_ours, iterators_seen

ALL = Case(draws="all")


def check(case=ALL, run=three_epochs, workers=2, how=None, **kwargs):
    return both(partial(make_loader, case, **kwargs), run, workers=workers, **(how or {}))


@pytest.mark.parametrize("prefetch", [1, 2, 3, 4])
def test_prefetch_factor(prefetch):
    check(Case(prefetch=prefetch, sampler="lazy"))


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("batch_size", [1, 4, 100])
def test_batch_size_and_drop_last(batch_size, drop_last):
    def run(loader):
        yield len(loader)
        yield from three_epochs(loader)

    check(run=run, batch_size=batch_size, drop_last=drop_last, persistent_workers=False)


@pytest.mark.parametrize("collate_fn", [None, lambda sample: ("as it is", *sample)])
def test_no_batching(collate_fn):
    check(batch_size=None, collate_fn=collate_fn, num_samples=11)


def test_a_batch_sampler():
    def make(num_workers):
        dataset = Samples(27, "all")
        sampler = BatchSampler(RandomSampler(dataset), 4, drop_last=True)
        return DataLoader(dataset, batch_sampler=sampler, num_workers=num_workers)

    both(make, three_epochs)


def test_a_list_of_lists_as_batch_sampler():
    batches = [[0], [], [3, 1, 2], [5, 5, 5, 5]]

    def make(num_workers):
        collate = lambda samples: (len(samples), samples)  # noqa: E731
        return DataLoader(
            Samples(6, "all"), batch_sampler=batches, num_workers=num_workers, collate_fn=collate
        )

    both(make, three_epochs)


@pytest.mark.parametrize("persistent", [False, True])
def test_a_generator_of_the_users_own_is_left_where_torch_leaves_it(persistent):
    def make(num_workers):
        generator = torch.Generator().manual_seed(4)
        return make_loader(
            Case(draws="all", persistent=persistent, sampler="in sequence"), num_workers,
            sampler=None, shuffle=True, generator=generator,
        )  # fmt: skip

    def run(loader):
        for batch in three_epochs(loader):
            yield batch, loader.generator.get_state()

    both(make, run)


class Keyed(Dataset):
    """Keys of any type, and both ways of asking."""

    def __len__(self):
        return 12

    def __getitem__(self, key):
        return repr(key), torch.rand(2)


class AskedForBatches(Keyed):
    def __getitems__(self, keys):
        order = np.random.permutation(len(keys))
        return [(f"together: {keys}", int(k)) for k in order]


@pytest.mark.parametrize("more", [[], [torch.arange]], ids=["plain", "tensors"])
def test_keys_of_any_type(more):
    keys = ["a", ("b", 1), None, 2.5, {"k": [1]}, *(make(2) for make in more)]
    both(lambda w: DataLoader(Keyed(), sampler=keys, num_workers=w), three_epochs)
    resource_sharer.stop()  # torch's side sends tensor keys through a thread that stays


def test_indices_that_are_tensors():
    order = torch.arange(26, -1, -1)
    check(sampler=order)
    resource_sharer.stop()


def test_getitems():
    both(lambda w: DataLoader(AskedForBatches(), 5, True, num_workers=w), three_epochs)


def test_plain_python_objects_as_datasets():
    both(lambda w: DataLoader([1, 2.0, 5, 7], num_workers=w), three_epochs)
    both(lambda w: DataLoader({0: "a", 1: "b"}, num_workers=w, batch_size=2), three_epochs)


def reseed(worker_id):
    random.seed(worker_id)
    np.random.seed(torch.initial_seed() % 2**32)
    torch.utils.data.get_worker_info().dataset.scale = 10.0 + worker_id
    torch.utils.data.get_worker_info().dataset.own = np.random.default_rng(worker_id)


@pytest.mark.parametrize("draws", ["none", "all"])
@pytest.mark.parametrize("persistent", [False, True])
def test_worker_init_fn_changes_its_worker_alone(draws, persistent):
    check(Case(draws=draws, persistent=persistent, workers=3), worker_init_fn=reseed, workers=3)


@pytest.mark.parametrize("timeout", [30.5, 60])
def test_a_timeout_that_is_not_reached(timeout):
    check(timeout=timeout)


@pytest.mark.parametrize("persistent", [False, True])
def test_out_of_order_gives_the_same_batches_in_some_order(persistent):
    case = Case(draws="none", persistent=persistent, sampler="in sequence")

    def full_epochs(loader):
        for _ in range(3):
            yield from loader

    check(case, full_epochs, workers=3, how={"in_order": False}, in_order=False)


def test_pin_memory_without_an_accelerator_warns_as_torch():
    case = Case(form="own class")

    def run(loader):
        for _ in range(2):
            with warnings.catch_warnings(record=True, action="always") as caught:
                batches = list(loader)
            found = [(w.category.__name__, str(w.message)) for w in caught]
            # Python 3.12's, of a fork beside threads: once where torch's come once a worker.
            yield [w for w in found if "multi-threaded" not in w[1]]
            yield from batches

    check(case, run, pin_memory=True)


def test_length_attributes_and_types_are_those_of_torch():
    def run(loader):
        iterator = iter(loader)
        yield len(iterator), iter(iterator) is iterator
        yield (
            iterator._num_workers, iterator._prefetch_factor, iterator._timeout,
            iterator._pin_memory, iterator._persistent_workers, iterator._dataset_kind,
            iterator._drop_last, iterator._auto_collation, iterator._base_seed,
            iterator._dataset is loader.dataset, len(iterator._workers),
        )  # fmt: skip
        for _ in range(3):
            next(iterator)
        yield iterator._num_yielded, loader._iterator is iterator

    check(run=run)
    check(Case(persistent=True), run=run)


def test_an_exhausted_iterator_stays_exhausted():
    def run(loader):
        iterator = iter(loader)
        yield list(iterator)
        yield next(iterator, "end"), next(iterator, "end")

    check(run=run)
    check(Case(persistent=True), run=run)


def test_an_empty_loader():
    def run(loader):
        yield list(loader), list(loader)

    check(run=run, sampler=[], batch_size=2)


@pytest.mark.away_by_default
def test_iterating_from_inside_a_generator_that_is_dropped():
    def run(loader):
        def endless():
            while True:
                yield from loader

        batches = endless()
        for _ in range(20):
            yield next(batches)
            step()
        batches.close()

    check(run=run)


def test_a_loader_that_is_deep_copied_or_whose_attributes_change():
    def run(loader):
        yield from loader
        loader.num_workers = 1
        yield from loader
        loader.collate_fn = lambda samples: len(samples)
        loader.worker_init_fn = reseed
        yield from loader
        yield from copy.deepcopy(loader)

    check(run=run)


def test_a_fork_context_given_by_name_or_object_is_carried():
    check(multiprocessing_context="fork")
    check(multiprocessing_context=torch.multiprocessing.get_context("fork"))


def test_a_loader_class_with_its_own_get_iterator_is_left_to_torch():
    class OwnIterator(DataLoader):
        def _get_iterator(self):
            return torch.utils.data.dataloader._MultiProcessingDataLoaderIter(self)

    with installed():
        iterator = iter(OwnIterator(Samples(8), num_workers=1))
        assert not is_ours(type(iterator))
        assert len(list(iterator)) == 8


def test_restore_gives_torch_its_own_back():
    original = DataLoader._get_iterator
    with installed():
        assert DataLoader._get_iterator is not original
    assert DataLoader._get_iterator is original
    with iterators_seen() as kinds:
        list(DataLoader(Samples(4), num_workers=1))
    assert not any(map(is_ours, kinds))


def test_off_leaves_every_loader_to_torch():
    both(
        partial(make_loader, ALL), three_epochs, offloaded=False,
        settings=Settings(off=True, quiet=True),
    )  # fmt: skip
