"""What the trainer keeps is never written again: not by the same worker, epoch, loader or run.

Every kept thing is hashed when it comes and again at the end, when all memory has been in use
several times over.
"""

import gc
import os
import signal
from functools import partial

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from stoker.config import Settings
from stoker.reports.digest import batch_sha256
from tests.equality.cases import Case, make_loader
from tests.equality.forms import FORMS, Form, large
from tests.equality.sides import both, installed

SHAPES = {
    "1 KB": (128,),
    "just under 64 KiB": (8191,),
    "64 KiB": (8192,),
    "over 64 KiB": (8193,),
    "200 KB": (3, 96, 96),
    "4 MB": (512, 1024),
}
SETTINGS = {
    "roomy": Settings(quiet=True),
    "1 MB budget": Settings(quiet=True, memory=1 << 20),
    "no budget": Settings(quiet=True, memory=0),
}


def form(shape):
    return Form(lambda i, x: (large(x, *shape), i))


def loader_of(shape, num_workers, num_samples=16, **kwargs):
    FORMS["kept"] = form(shape)
    try:
        case = Case(form="kept", draws="random", sampler="shuffle")
        return make_loader(case, num_workers, num_samples, **kwargs)
    finally:
        del FORMS["kept"]


@pytest.mark.cover(1)
@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_a_list_of_a_loader_stays_as_it_was(shape, settings):
    def run(loader):
        kept = list(loader)
        yield kept
        for _ in range(2):
            yield from loader
        yield kept

    both(partial(loader_of, shape), run, settings=settings)


@pytest.mark.cover(1)
@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
@pytest.mark.parametrize("part", [0, 1], ids=["images", "labels"])
@pytest.mark.parametrize("persistent", [False, True])
def test_one_part_of_every_batch_stays_as_it_was(part, settings, persistent):
    def run(loader):
        kept = []
        for _ in range(3):
            kept += [batch[part] for batch in loader]
            yield kept

    make = partial(loader_of, SHAPES["200 KB"], persistent_workers=persistent)
    both(make, run, settings=settings)


KEPT_ALONE = {
    "slice": lambda x: x[0],
    "last element": lambda x: x[-1, -1, -1, -1],
    "transposed": lambda x: x.transpose(0, -1),
    "detached": lambda x: x.detach(),
    "data": lambda x: x.data,
    "numpy": lambda x: x.numpy(),
    "numpy slice": lambda x: x.numpy()[0, :, ::2],
    "memoryview": lambda x: memoryview(x.numpy()),
    "storage": lambda x: x.untyped_storage(),
    "typed storage": lambda x: x.storage(),
    "set_": lambda x: torch.empty(0).set_(x.untyped_storage()),
    "dlpack": lambda x: torch.from_dlpack(x),
    "other dtype": lambda x: x.view(torch.int32),
    "parameter": lambda x: torch.nn.Parameter(x),
    "dataset": lambda x: TensorDataset(x).tensors,
    "tensor list": lambda x: list(x.unbind()),
    "sparse": lambda x: torch.sparse_coo_tensor(
        torch.tensor([[0, 1]]), x.view(2, -1), check_invariants=False
    ),
    "resized": lambda x: x.as_strided((3, 3), (2, 1), 5),
    "swapped": lambda x: torch.utils.swap_tensors(x, empty := torch.empty(1)) or empty,
}


@pytest.mark.few(10)
@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")
@pytest.mark.parametrize("keep", KEPT_ALONE.values(), ids=KEPT_ALONE)
def test_what_is_kept_of_a_dropped_batch_stays_as_it_was(keep):
    def run(loader):
        kept = []
        for _ in range(2):
            for x, _ in loader:
                kept.append(keep(x))
                del x
                yield list(map(bytes_of, kept))

    both(partial(loader_of, SHAPES["200 KB"], num_samples=8), run)


def bytes_of(x):
    return x.tobytes() if isinstance(x, memoryview) else x


def test_what_autograd_keeps_for_the_backward_pass_stays_as_it_was():
    def run(loader):
        weight = torch.ones(3, 1, 1, requires_grad=True)
        losses = []
        for _ in range(3):
            for x, _ in loader:
                losses.append((x * weight).square().sum())
                del x
        torch.stack(losses).mean().backward()
        yield weight.grad

    both(partial(loader_of, SHAPES["200 KB"]), run)


def test_what_a_reference_cycle_keeps_stays_as_it_was():
    def run(loader):
        gc.disable()
        try:
            cycles = []
            for _ in range(3):
                for x, _ in loader:
                    cycle = {"x": x[1:]}
                    cycle["itself"] = cycle
                    cycles.append(cycle)
                    del x, cycle
            yield [cycle["x"] for cycle in cycles]
        finally:
            gc.enable()

    both(partial(loader_of, SHAPES["200 KB"]), run)


@pytest.mark.away_by_default
def test_tensors_outlive_their_loader_and_its_patches():
    with installed():
        kept = [batch for _ in range(2) for batch in loader_of(SHAPES["200 KB"], 2)]
        digests = list(map(batch_sha256, kept))
    with installed():
        for _ in range(3):
            for batch in loader_of(SHAPES["200 KB"], 2):
                del batch
    gc.collect()
    assert list(map(batch_sha256, kept)) == digests


def test_tensors_outlive_a_worker_that_was_killed():
    with installed():
        iterator = iter(loader_of(SHAPES["200 KB"], 2))
        kept = [next(iterator) for _ in range(4)]
        digests = list(map(batch_sha256, kept))
        for worker in iterator._workers:
            os.kill(worker.pid, signal.SIGKILL)
        rest = list(iterator)
        assert len(rest) == 4
        assert list(map(batch_sha256, kept)) == digests


def test_a_forked_child_of_the_users_keeps_the_batch_that_it_was_forked_with():
    """The trainer drops its batch and trains on; the child still reads the copy it was born with."""

    def run(loader):
        iterator = iter(loader)
        x, _ = next(iterator)
        before = batch_sha256(x)
        go_read, go_write = os.pipe()
        told_read, told_write = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.read(go_read, 1)
            os.write(told_write, b"=" if batch_sha256(x) == before else b"!")
            os._exit(0)
        del x
        yield from iterator
        yield from loader
        os.write(go_write, b"!")
        yield os.read(told_read, 1) == b"="
        os.waitpid(pid, 0)
        for fd in (go_read, go_write, told_read, told_write):
            os.close(fd)

    both(partial(loader_of, SHAPES["200 KB"]), run)


def test_a_loader_over_the_kept_batches_of_another_sees_them_as_they_were():
    """A cache of batches is inherited by the workers of the next loader, and dropped meanwhile."""

    def run(loader):
        cache = [x for x, _ in loader]
        iterator = iter(DataLoader(cache, batch_size=None, num_workers=2, prefetch_factor=1))
        yield next(iterator)
        cache.clear()
        yield from loader
        yield from iterator

    both(partial(loader_of, SHAPES["200 KB"]), run)


def test_a_generator_that_holds_its_batch_while_the_next_is_made():
    def run(loader):
        previous = None
        for x, _ in loader:
            yield x, previous
            previous = x[0]

    both(partial(loader_of, SHAPES["4 MB"], num_samples=20), run)
