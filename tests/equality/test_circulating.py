"""Memory of large batches goes from worker to worker: what is delivered stays as it was, whatever
the dataset keeps, the script holds, and whoever is killed."""

import gc
import itertools
import os
import random
import signal
from functools import partial

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, default_collate

from stoker.wire.arena import AT_ONCE_NBYTES
from tests.equality.sides import both

SIDE = 512  # float32: four samples are 4 MiB


class Images(Dataset):
    def __len__(self):
        return 40

    def __getitem__(self, index):
        return torch.full((SIDE, SIDE), float(index)), torch.full((SIDE, SIDE // 2), index)


def pair(samples):
    return default_collate(samples)


def of_their_own_sizes(samples):
    """Batches of 1 to 5 MiB, each as wide as its first sample's number says."""
    width = SIDE // 4 + 16 * int(samples[0][0][0, 0])
    return torch.stack([image[:, :1].expand(SIDE, width) for image, _ in samples])


class WithTheOneBefore:
    """The dataset keeps a batch, and hands it out again with the next one."""

    def __init__(self):
        self.before = torch.zeros(1)

    def __call__(self, samples):
        image = default_collate([image for image, _ in samples])
        both_of_them = image, self.before
        self.before = image
        return both_of_them


class KeepsAll:
    """The dataset keeps every batch, and looks at the first again each time."""

    def __init__(self):
        self.kept = []

    def __call__(self, samples):
        self.kept.append(default_collate([image for image, _ in samples]))
        return self.kept[-1], float(self.kept[0].sum())


COLLATES = {
    "two sizes": lambda: pair,
    "each its own size": lambda: of_their_own_sizes,
    "kept until the next": WithTheOneBefore,
    "all kept": KeepsAll,
}


def make(num_workers, collate, **kwargs):
    return DataLoader(
        Images(), 4, shuffle=True, num_workers=num_workers, collate_fn=COLLATES[collate](), **kwargs
    )


def images_of(batch):
    return batch if isinstance(batch, torch.Tensor) else batch[0]


def run(loader, num_epochs=4, kill_at=()):
    held, lots = [], random.Random(1)
    for epoch in range(num_epochs):
        iterator = iter(loader)
        for number, batch in enumerate(iterator):
            assert images_of(batch).nbytes >= AT_ONCE_NBYTES, "or this tests nothing"
            held.append(batch)
            yield batch
            del held[lots.randrange(len(held)) : len(held) - lots.randrange(3)]
            if (epoch, number) in kill_at:
                os.kill(iterator._workers[number % 2].pid, signal.SIGKILL)
        yield held


@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("collate", COLLATES)
def test_large_batches_stay_as_they_were(collate, persistent):
    both(partial(make, collate=collate, persistent_workers=persistent), run)


@pytest.mark.parametrize("collate", ["two sizes", "each its own size"])
def test_large_batches_stay_as_they_were_though_workers_are_killed(collate):
    """torch's side kills nobody: there it would end the run."""
    killing = partial(run, kill_at={(0, 1), (0, 6), (1, 0), (2, 3), (2, 4)})
    both(partial(make, collate=collate), killing, plain_run=run)


def test_loaders_that_take_turns_have_each_others_memory_and_disturb_nobody():
    def run_both(loaders):
        held = []
        for _ in range(3):
            for loader in loaders:
                for batch in loader:
                    held = [*held[-1:], batch]
                    yield batch
                yield held

    def make_both(num_workers):
        return [make(num_workers, "two sizes"), make(num_workers, "each its own size")]

    both(make_both, run_both)


def test_a_script_that_forks_beside_large_batches_reads_them_in_its_child():
    def run_forking(loader):
        for _ in range(2):
            for number, batch in enumerate(loader):
                if number == 2:
                    array = images_of(batch).numpy()  # torch's threads are not in a child
                    expected, (go_fd, say_fd) = array.sum(), os.pipe()
                    child = os.fork()
                    if child == 0:
                        os.close(say_fd)  # or a failure of the parent's would leave it here
                        os.read(go_fd, 1)
                        os._exit(int(array.sum() == expected))
                yield batch
            del array, batch
            yield [len(list(loader))]
            os.write(say_fd, b"g")
            yield os.waitpid(child, 0)[1]
            os.close(go_fd)
            os.close(say_fd)

    both(partial(make, collate="two sizes"), run_forking)


def test_large_batches_outlive_a_loader_that_is_garbage_in_a_cycle():
    def run_twice(make_one):
        held = []
        for _ in range(4):
            loader = make_one()
            loader.itself = loader  # as Lightning's data modules and loaders refer to each other
            held += [*itertools.islice(loader, 3)]
            yield held
            del loader
            gc.collect()
        yield held

    def makes(num_workers):
        return partial(make, num_workers, "two sizes", persistent_workers=True)

    both(makes, run_twice)
