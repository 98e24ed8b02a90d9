"""Loader classes as public code writes them. Each copies the shape of the class that it names."""

import os
import random

import numpy as np
import torch
from torch.utils.data import DataLoader
from torch.utils.data.dataloader import _BaseDataLoaderIter, _MultiProcessingDataLoaderIter

from tests.equality.cases import Samples, step
from tests.equality.sides import both


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
