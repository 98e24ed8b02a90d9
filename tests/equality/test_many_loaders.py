"""Several loaders at once, in every order and from every thread."""

import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
import torch
from torch.utils.data import DataLoader

from tests.equality.cases import Samples, step
from tests.equality.sides import both


def pair_of_loaders(num_workers, persistent=False):
    return [
        DataLoader(
            Samples(num_samples, draws), 3, shuffle=True,
            num_workers=num_workers, persistent_workers=persistent,
        )
        for num_samples, draws in ((19, "all"), (13, "random"))
    ]  # fmt: skip


@pytest.fixture(params=[False, True], ids=["forked anew", "persistent"])
def make(request):
    return lambda num_workers: pair_of_loaders(num_workers, request.param)


def test_training_and_validation_in_turn(make):
    def run(loaders):
        train, val = loaders
        for _ in range(2):
            for batch in train:
                yield batch
                step()
            yield from val

    both(make, run)


def test_validation_in_the_middle_of_training(make):
    def run(loaders):
        train, val = loaders
        for k, batch in enumerate(train):
            yield batch
            step()
            if k % 3 == 2:
                yield from val

    both(make, run)


@pytest.mark.away_by_default
def test_zip(make):
    def run(loaders):
        for _ in range(2):
            yield from zip(*loaders, strict=False)

    both(make, run)


def test_the_same_loader_twice_at_once():
    def run(loader):
        for a, b in zip(loader, loader, strict=True):
            yield a, b
            step()
        outer = iter(loader)
        yield next(outer)
        yield from loader
        yield from outer

    both(lambda w: pair_of_loaders(w)[0], run)


def test_an_abandoned_iterator_that_is_taken_up_again():
    def run(loaders):
        first, second = map(iter, loaders)
        yield next(first)
        yield next(second)
        del second
        yield from first

    both(lambda w: pair_of_loaders(w), run)


def in_a_thread(work):
    """The result of work(), which ran in a thread that has ended."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(work).result()


def at_once(work):
    return work()


def test_every_epoch_in_a_thread_of_its_own(make):
    """torch's workers end with the thread that started them, so its side uses none."""

    def run(loaders, somewhere):
        for _ in range(2):
            for loader in loaders:
                yield somewhere(lambda loader=loader: list(loader))

    both(make, partial(run, somewhere=in_a_thread), plain_run=partial(run, somewhere=at_once))


def test_an_iterator_that_outlives_the_thread_that_made_it(make):
    def run(loaders, somewhere):
        iterator = somewhere(lambda: iter(loaders[0]))
        yield next(iterator)
        for _ in range(2):
            yield somewhere(lambda: next(iterator))
        yield from iterator

    both(make, partial(run, somewhere=in_a_thread), plain_run=partial(run, somewhere=at_once))


def test_the_last_reference_dies_in_another_thread():
    def run(loaders):
        holder = [iter(loaders[0])]
        yield next(holder[0])
        in_a_thread(holder.clear)
        yield from loaders[1]

    both(pair_of_loaders, run)


def test_threads_that_iterate_at_the_same_time():
    """Each loader takes its seed from a generator of its own: threads have no order."""

    def make(num_workers):
        return [
            DataLoader(
                Samples(17, "all"), 3, num_workers=num_workers, shuffle=True,
                generator=torch.Generator().manual_seed(seed),
            )
            for seed in range(4)
        ]  # fmt: skip

    def run(loaders):
        results = [None] * len(loaders)

        def work(k):
            results[k] = [batch for _ in range(2) for batch in loaders[k]]

        threads = [threading.Thread(target=work, args=(k,)) for k in range(len(loaders))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        yield from results

    both(make, run)


def test_many_loaders_alive_at_once():
    def run(loaders):
        iterators = [iter(loader) for loader in loaders]
        yield from zip(*iterators, strict=False)

    both(lambda w: [pair_of_loaders(w)[k % 2] for k in range(8)], run, workers=1)
