"""Loader classes as public code writes them. Each copies the shape of the class that it names."""

import os
import random
import threading
from multiprocessing.context import SpawnContext

import numpy as np
import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    SequentialSampler,
    _DatasetKind,
    default_collate,
)
from torch.utils.data.dataloader import (
    _BaseDataLoaderIter,
    _MultiProcessingDataLoaderIter,
    _SingleProcessDataLoaderIter,
)

from stoker.config import Settings
from stoker.intercept import run
from stoker.intercept.eligible import why_not_offload
from tests.equality.cases import Samples, step
from tests.equality.sides import assert_equal, both, installed, is_ours, play


class _RepeatSampler:
    def __init__(self, sampler):
        self.sampler = sampler

    def __iter__(self):
        while True:
            yield from iter(self.sampler)


class InfiniteDataLoader(DataLoader):
    """ultralytics.data.build.InfiniteDataLoader."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        object.__setattr__(self, "batch_sampler", _RepeatSampler(self.batch_sampler))
        self.iterator = super().__iter__()

    def __len__(self):
        return len(self.batch_sampler.sampler)

    def __iter__(self):
        for _ in range(len(self)):
            yield next(self.iterator)

    def __del__(self):
        try:
            if not hasattr(self.iterator, "_workers"):
                return
            for w in self.iterator._workers:
                if w.is_alive():
                    w.terminate()
            self.iterator._shutdown_workers()
        except Exception:
            pass

    def reset(self):
        self.iterator = self._get_iterator()


class MultiEpochsDataLoader(DataLoader):
    """timm.data.loader.MultiEpochsDataLoader."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self._DataLoader__initialized = False
        self.batch_sampler = _RepeatSampler(self.batch_sampler)
        self._DataLoader__initialized = True
        self.iterator = super().__iter__()

    def __len__(self):
        return len(self.batch_sampler.sampler)

    def __iter__(self):
        for _ in range(len(self)):
            yield next(self.iterator)


class OneAhead(DataLoader):
    """accelerate.data_loader.DataLoaderShard: fetches one batch ahead, to know which is last."""

    def __iter__(self):
        self.end = False
        iterator = super().__iter__()
        try:
            current = next(iterator)
        except StopIteration:
            return
        while True:
            try:
                following = next(iterator)
            except StopIteration:
                self.end = True
                yield current
                return
            yield current
            current = following


class SeedsAtIter(DataLoader):
    """Draws from every generator before it hands over to torch."""

    def __iter__(self):
        torch.manual_seed(random.randrange(100) + np.random.randint(100))
        return super().__iter__()


class CallsGetIterator(DataLoader):
    def __iter__(self):
        return self._get_iterator()


class ByName(DataLoader):
    """fastai.data.load.DataLoader, whose iterator is made by its name."""

    def __iter__(self):
        self.seen = _MultiProcessingDataLoaderIter(self)
        yield from self.seen


class _OwnIterator(_MultiProcessingDataLoaderIter):
    pass


class NeverAsks(DataLoader):
    """torchdata.stateful_dataloader.StatefulDataLoader: neither __iter__ nor _get_iterator is torch's."""

    def _get_iterator(self):
        return _OwnIterator(self)

    def __iter__(self):
        return self._get_iterator()


class _Wrapped:
    """torch_geometric.loader.base.DataLoaderIterator."""

    def __init__(self, iterator):
        self.iterator = iterator

    def __iter__(self):
        return self

    def __next__(self):
        return [next(self.iterator)]


class Generates(DataLoader):
    def _get_iterator(self):
        yield from (1, 2)


class NodeLoader(DataLoader):
    """torch_geometric.loader.NodeLoader: wraps what torch's _get_iterator gives."""

    __module__ = "torch_geometric.loader.node_loader"

    def _get_iterator(self):
        return _Wrapped(super()._get_iterator())


class TakesApart(NodeLoader):
    def _get_iterator(self):
        return super()._get_iterator().iterator


def make(kind, **kwargs):
    def make_loader(num_workers):
        return kind(Samples(13, "all"), 4, shuffle=True, num_workers=num_workers, **kwargs)

    return make_loader


def epochs(loader, num=3):
    for _ in range(num):
        yield len(loader)
        for batch in loader:
            yield batch
            step()


def test_ultralytics_infinite_loader():
    def run(loader):
        yield from epochs(loader)
        loader.reset()
        yield from epochs(loader)

    both(make(InfiniteDataLoader), run)


def test_ultralytics_infinite_loader_with_terminated_workers_ends():
    def run(loader):
        yield next(iter(loader))
        workers = loader.iterator._workers
        del loader
        for worker in workers:
            worker.join(10)
        yield [worker.is_alive() for worker in workers]

    both(make(InfiniteDataLoader), run)


def test_timm_multi_epochs_loader():
    both(make(MultiEpochsDataLoader), epochs)


def test_accelerate_one_batch_ahead():
    def run(loader):
        for _ in range(2):
            for batch in loader:
                yield loader.end, batch

    both(make(OneAhead), run)
    both(make(OneAhead, persistent_workers=True), run)


def test_a_subclass_that_seeds_before_it_iterates():
    both(make(SeedsAtIter), epochs)


def test_a_subclass_that_asks_for_its_iterator():
    both(make(CallsGetIterator), epochs)


def test_lightning_shuts_workers_down_between_epochs():
    """lightning.pytorch.utilities.combined_loader.CombinedLoader.reset."""

    def run(loader):
        for _ in range(3):
            iterator = iter(loader)
            yield next(iterator)
            assert isinstance(loader._iterator, _MultiProcessingDataLoaderIter)
            loader._iterator._shutdown_workers()
            loader._iterator = None
            del iterator

    both(make(DataLoader, persistent_workers=True), run)


def test_an_iterator_is_an_instance_of_torchs():
    def run(loader):
        iterator = iter(loader)
        yield isinstance(iterator, _MultiProcessingDataLoaderIter)
        yield isinstance(iterator, _BaseDataLoaderIter)
        yield from iterator

    both(make(DataLoader), run)


def test_workers_are_offered_as_torch_offers_them():
    def run(loader):
        iterator = iter(loader)
        next(iterator)
        workers = iterator._workers
        pids = {worker.pid for worker in workers}
        yield len(workers), len(pids), all(isinstance(pid, int) for pid in pids)
        yield [(worker.is_alive(), worker.exitcode) for worker in workers]
        yield isinstance(iterator._data_queue.qsize(), int)
        iterator._shutdown_workers()
        for worker in workers:
            worker.join(timeout=10)
        yield [worker.is_alive() for worker in workers]
        yield [worker.exitcode for worker in workers]

    both(make(DataLoader), run, workers=3)


def test_the_pid_of_a_worker_is_the_pid_that_the_dataset_sees():

    class Pids(Samples):
        def __getitem__(self, index):
            return os.getpid()

    def run(loader):
        iterator = iter(loader)
        pids = [worker.pid for worker in iterator._workers]
        for k, batch in enumerate(iterator):
            yield batch.tolist() == [pids[k % len(pids)]] * len(batch)

    both(lambda w: DataLoader(Pids(24), 2, num_workers=w), run, workers=3)


def test_an_iterator_made_by_its_name_is_taken_over():
    kinds = []

    def three_epochs(loader):
        for batch in epochs(loader):
            yield batch
            kinds.append(type(getattr(loader, "seen", None)))

    plain = play(make(ByName), three_epochs, 2)
    assert not any(map(is_ours, kinds))
    kinds.clear()
    with installed():
        ours = play(make(ByName), three_epochs, 2)
        assert [record.offloaded for record in records()] == [True]
    assert_equal(plain, ours)
    assert is_ours(kinds[-1])


class Resembling:
    """No DataLoader, and only what torch's iterator without workers asks for."""

    num_workers, timeout, pin_memory, persistent_workers, generator = 0, 0, False, False, None
    drop_last, _auto_collation, _IterableDataset_len_called = False, True, None
    _dataset_kind, collate_fn = _DatasetKind.Map, staticmethod(default_collate)

    def __init__(self):
        self.dataset = Samples(8)
        self._index_sampler = BatchSampler(SequentialSampler(self.dataset), 4, drop_last=False)


class ThreadAsProcess(threading.Thread):
    """monai.data.thread_buffer._ProcessThread."""

    pid = exitcode = None


class ThreadContext(SpawnContext):
    """monai.data.thread_buffer._ProcessThreadContext."""

    _name, Process = "threads", ThreadAsProcess


def test_a_context_that_makes_threads_is_left_to_torch():
    loader = make(DataLoader, multiprocessing_context=ThreadContext())(2)
    with installed():
        (reason,) = why_not_offload(loader, chains_asked=False)
    assert reason == "workers are made by ThreadContext, whose processes are none"


def test_a_loader_that_asks_for_threads_is_left_to_torch():
    loader = make(DataLoader)(2)
    loader.worker_method = "thread"  # as a torch to come may have it
    with installed():
        (reason,) = why_not_offload(loader, chains_asked=False)
    assert reason == "worker_method='thread': its workers are no processes"


def test_what_only_resembles_a_loader_gets_its_iterator_and_is_counted():
    with installed():
        assert len(list(_SingleProcessDataLoaderIter(Resembling()))) == 2
        assert [record.num_batches for record in records()] == [2]


def test_a_loader_that_never_asks_torch_is_counted_and_told():
    with installed():
        assert len(list(make(NeverAsks)(2))) == 4
        (record,) = records()
        assert (record.num_batches, record.offloaded) == (4, False)
        assert record.reasons == ["_OwnIterator is made without asking torch's DataLoader"]


def test_whatever_a_class_of_its_own_hands_out_arrives():
    with installed():
        assert list(Generates(Samples(8), num_workers=1)) == [1, 2]
        assert [record.reasons for record in records()] == [["Generates overrides _get_iterator"]]


@pytest.mark.parametrize("num_workers", [0, 1])
def test_a_warning_of_torchs_iterator_names_torchs_file(num_workers):
    """Filters by module would miss it otherwise."""
    with installed(Settings(off=True, quiet=True)), pytest.warns(UserWarning) as caught:
        iter(DataLoader(Samples(8), num_workers=num_workers, pin_memory=True))
    assert "torch/utils/data" in caught[0].filename


def test_a_known_wrapper_of_torchs_iterator_is_taken_over_and_its_heirs_are_not():
    both(make(NodeLoader), epochs)
    with installed():
        assert len(list(make(TakesApart)(2))) == 4
        assert [record.reasons for record in records()] == [["TakesApart overrides _get_iterator"]]


def records():
    return list(run.recorder()._loaders)


def test_loaders_of_two_classes_at_one_place_are_two_rows():
    """A training function gets one after the other; only the first is taken over."""

    class Own(DataLoader):
        def _get_iterator(self):
            return super()._get_iterator()

    with installed():
        for kind in (DataLoader, Own):
            loader = kind(range(12), 3, num_workers=1)
            assert len(list(loader)) == 4
            del loader
        rows = [(row.offloaded, row.num_batches) for row in run.recorder()._loaders]
    assert rows == [(True, 4), (False, 4)]
