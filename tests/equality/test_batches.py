"""What a digest does not tell: strides, sharing, flags, and what the trainer may do with a batch."""

import copy
import functools
import io
import pickle
from functools import partial
from multiprocessing import resource_sharer

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, default_collate

from stoker.config import Settings
from tests import methods
from tests.equality.cases import Case, make_loader
from tests.equality.forms import FORMS, Form, large
from tests.equality.sides import QUIET, both

SIZES = {"small": (4, 5), "large": (3, 96, 96)}


def check(form: str | Form, run, settings=QUIET, **kwargs):
    if isinstance(form, Form):
        FORMS["under test"] = form
    try:
        name = "under test" if isinstance(form, Form) else form
        both(partial(make_loader, Case(form=name, draws="torch"), **kwargs), run, settings=settings)
    finally:
        FORMS.pop("under test", None)


def tensors_of(batch):
    if isinstance(batch, torch.Tensor):
        return [batch]
    parts = batch.values() if isinstance(batch, dict) else batch
    return [t for part in parts for t in tensors_of(part)]


@pytest.mark.parametrize(
    "form",
    ["non-contiguous", "expanded", "channels-last", "shared storage", "shared large storage"],
)
def test_strides_and_offsets_arrive(form):
    def run(loader):
        for batch in loader:
            yield [(t.stride(), t.storage_offset(), t.is_contiguous()) for t in tensors_of(batch)]

    check(form, run)


def shown_of(x):
    """What a script can see of the memory of a tensor or array, but is_shared()."""
    if isinstance(x, np.ndarray):
        return x.strides, type(x.base), str(x.flags)
    file = io.BytesIO()
    torch.save(x, file)
    storage_nbytes = x.untyped_storage().nbytes()
    is_view = x._is_view(), x._base is None
    return x.stride(), x.storage_offset(), storage_nbytes, is_view, len(file.getvalue()), x._version


def of_all_sizes(samples):
    """Copied out, in the arena, and streamed there; whole, as part of a storage, and as arrays."""
    x = torch.stack(samples)
    small, large = x[:, :9].clone(), x[:, :, None].repeat(1, 1, 3).permute(0, 2, 1)
    arrays = [np.zeros(100), np.zeros((20, 30)).T, np.ones((2, 3000))]
    return [default_collate(samples), x.clone(), small[1], small[:, 2], large, *arrays]


@pytest.mark.away_by_default
@pytest.mark.parametrize("memory", [None, 0], ids=["shared", "copied out"])
def test_the_memory_of_what_arrives_looks_like_torchs(memory):
    def run(loader):
        for batch in loader:
            yield repr([shown_of(x) for x in batch])

    form = Form(lambda i, x: large(x, 1 << 18), of_all_sizes)
    check(form, run, num_samples=6, settings=Settings(quiet=True, memory=memory))


@pytest.mark.parametrize("form", ["shared storage", "shared large storage"])
def test_views_of_one_storage_still_share_it_in_the_trainer(form):
    def run(loader):
        for batch in loader:
            assert len({t.untyped_storage().data_ptr() for t in tensors_of(batch)}) == 1
            batch["head"].zero_()
            batch["last"].fill_(7)
            yield batch

    check(form, run)


@pytest.mark.parametrize("shape", SIZES.values(), ids=SIZES)
def test_one_tensor_twice_in_a_batch_is_shared(shape):
    def twice(samples):
        x = torch.stack(samples)
        return [x, x, {"again": x}]

    def run(loader):
        for first, second, third in loader:
            first.add_(1)
            yield first, second, third

    check(Form(lambda i, x: large(x, *shape), twice), run)


@pytest.mark.parametrize("shape", SIZES.values(), ids=SIZES)
def test_equal_tensors_in_a_batch_are_not_shared(shape):
    def run(loader):
        for first, second in loader:
            first.zero_()
            yield first, second

    check(Form(lambda i, x: large(x, *shape), lambda s: [torch.stack(s), torch.stack(s)]), run)


@pytest.mark.away_by_default
@pytest.mark.parametrize("shape", SIZES.values(), ids=SIZES)
def test_a_trainer_may_change_batches_in_place(shape):
    def run(loader):
        for x, indices in loader:
            x.mul_(2).clamp_(max=3)
            x[0] = -1
            indices += 1
            x.requires_grad_()
            (x * 2).sum().backward()
            yield x, indices, x.grad

    check(Form(lambda i, x: (large(x, *shape), i)), run)


@pytest.mark.parametrize("form", ["arrays", "large arrays"])
def test_arrays_keep_their_order_and_may_be_written(form):
    def run(loader):
        for batch in loader:
            arrays = [a for a in batch.values() if isinstance(a, np.ndarray)]
            yield [(a.flags.writeable, a.flags.c_contiguous, a.flags.f_contiguous) for a in arrays]
            for array in arrays:
                array[:] = array[::-1].copy()
            yield batch

    check(form, run)


def test_bytearrays_may_be_written():
    def run(loader):
        for batch in loader:
            batch[0][0] = 255
            yield batch

    check(Form(lambda i, x: i, lambda s: [bytearray(b"x" * 100_000), bytearray(b"y")]), run)


def test_requires_grad_and_leafness_arrive():
    def leaf(samples):
        return torch.stack(samples).requires_grad_(), torch.nn.Parameter(samples[0])

    def run(loader):
        for batch in loader:
            yield [(t.requires_grad, t.is_leaf, type(t).__name__) for t in batch]

    check(Form(lambda i, x: x, leaf), run)


@pytest.mark.parametrize("shape", SIZES.values(), ids=SIZES)
@pytest.mark.parametrize(
    "use",
    {
        "pickle": lambda x: pickle.loads(pickle.dumps(x)),
        "deep copy": copy.deepcopy,
        "clone": torch.clone,
        "numpy": lambda x: x.numpy().copy(),
        "share_memory_": lambda x: x.share_memory_(),
        "cat": lambda x: torch.cat([x, x]),
        "set_": lambda x: torch.empty(0).set_(x),
        "view as bytes": lambda x: x.view(torch.uint8),
        "pin nothing": lambda x: x.is_pinned(),
        "from_dlpack": torch.from_dlpack,
    }.items(),
    ids=lambda use: use[0],
)
def test_a_batch_can_be_used_as_any_tensor(use, shape):
    def run(loader):
        for x in loader:
            yield use[1](x)

    check(Form(lambda i, x: large(x, *shape)), run, num_samples=7)


@pytest.mark.parametrize("shape", SIZES.values(), ids=SIZES)
def test_a_batch_can_be_saved_and_loaded(shape):
    def run(loader):
        for x in loader:
            file = io.BytesIO()
            torch.save({"x": x, "part": x[0]}, file)
            file.seek(0)
            yield torch.load(file)

    check(Form(lambda i, x: large(x, *shape)), run, num_samples=7)


@pytest.mark.parametrize("shape", SIZES.values(), ids=SIZES)
def test_a_batch_can_be_sent_to_a_process_of_the_users(shape):
    def run(loader):
        context = torch.multiprocessing.get_context("fork")
        there, back = context.SimpleQueue(), context.SimpleQueue()
        child = context.Process(target=double_until_none, args=(there, back))
        child.start()
        for x in loader:
            there.put(x)
            yield back.get().clone()
        there.put(None)
        child.join()
        for queue in (there, back):
            queue.close()
        resource_sharer.stop()  # a thread of multiprocessing that stays

    check(Form(lambda i, x: large(x, *shape)), run, num_samples=7)


def double_until_none(there, back):
    torch.set_num_threads(1)
    while (x := there.get()) is not None:
        back.put(x * 2)
        del x


class Remembers(Dataset):
    """Gives out the same tensor again and again, and notes in place what it gave."""

    def __init__(self, shape):
        self.x = torch.zeros(shape)

    def __len__(self):
        return 12

    def __getitem__(self, index):
        self.x += 1
        return self.x


@pytest.mark.parametrize("shape", SIZES.values(), ids=SIZES)
def test_a_tensor_of_the_worker_handed_out_without_a_copy_is_as_sent_when_it_is_alone(shape):
    """Without collation torch shares the worker's own tensor; one task at a time fixes its value."""

    def make(num_workers):
        return DataLoader(
            Remembers(shape), batch_size=None, num_workers=num_workers, prefetch_factor=1,
            collate_fn=torch.clone, multiprocessing_context="fork",  # else workers share its tensor
        )  # fmt: skip

    both(make, list)


@pytest.mark.parametrize("shape", SIZES.values(), ids=SIZES)
def test_a_worker_may_go_on_with_the_tensor_that_it_delivered(shape):
    """The collate function keeps its last batch and reads it for the next one.

    torch's side does one task at a time: its feeder thread moves a batch to shared memory while
    the worker goes on, and a read at that moment sees freed memory (torch/multiprocessing/
    reductions.py `reduce_storage`, 2.13).
    """

    class Chained:
        last = 0.0

        def __call__(self, samples):
            mean = float(torch.as_tensor(self.last).mean())
            self.last = torch.utils.data.default_collate(samples) + mean
            return self.last

    def make(num_workers, prefetch_factor=2):
        return DataLoader(
            torch.rand(12, *shape), 2, num_workers=num_workers, prefetch_factor=prefetch_factor,
            collate_fn=Chained(),
        )  # fmt: skip

    one_at_a_time = functools.partial(make, prefetch_factor=1)
    both(make, lambda loader: (x.clone() for x in loader), plain_loader=one_at_a_time)


def test_shared_tensors_of_the_dataset_stay_shared_with_persistent_workers():
    """A flag in shared memory is how scripts speak to persistent workers."""

    class Flagged(Dataset):
        def __init__(self):
            self.flag = torch.zeros(1).share_memory_()

        def __len__(self):
            return 6

        def __getitem__(self, index):
            return self.flag * 10 + index

    def run(loader):
        for epoch in range(3):
            loader.dataset.flag.fill_(epoch)
            yield from loader

    both(lambda w: DataLoader(Flagged(), 2, num_workers=w, persistent_workers=True), run)


@pytest.mark.parametrize("persistent", [False, True])
def test_what_workers_write_to_shared_memory_reaches_the_trainer(persistent):
    class Counting(Dataset):
        def __init__(self):
            self.seen = torch.zeros(12).share_memory_()

        def __len__(self):
            return 12

        def __getitem__(self, index):
            self.seen[index] += 1
            return index

    def run(loader):
        for _ in range(2):
            yield from loader
        yield loader.dataset.seen

    both(lambda w: DataLoader(Counting(), 3, num_workers=w, persistent_workers=persistent), run)


class Scaled(Dataset):
    """Its tensor is one that the loop and workers share where a dataset is pickled."""

    def __init__(self, writes_at=None, size=3):
        self.scale, self.writes_at = torch.ones(size), writes_at

    def __len__(self):
        return 24

    def __getitem__(self, index):
        if index == self.writes_at:
            self.scale += 1
        return index * self.scale[:3]


def kept_alive(dataset):
    return lambda workers: DataLoader(
        dataset(), 2, num_workers=workers, persistent_workers=True, multiprocessing_context="forkserver"
    )  # fmt: skip


@pytest.mark.away
def test_a_tensor_that_the_loop_shares_with_workers_travels_until_the_loop_writes_to_it(places):
    def run(loader):
        for epoch in range(3):
            yield from loader
            loader.dataset.scale.fill_(2.0 + epoch)

    with methods.helpers():
        both(kept_alive(Scaled), run)
    assert places.num_away == 12  # those of the first epoch


@pytest.mark.away
def test_one_that_is_too_large_to_be_compared_stays_here_and_it_is_said_why(places):
    with methods.helpers():
        both(kept_alive(partial(Scaled, size=1 << 19)), lambda loader: loader)
    assert places.num_away == 0
    assert any("a tensor that other processes may change" in line for line in places.said)


@pytest.mark.away
def test_what_a_sample_writes_to_such_a_tensor_is_written_where_the_loop_sees_it(places):
    def run(loader):
        for _ in range(2):
            yield from loader
            yield loader.dataset.scale.clone()

    with methods.helpers():
        both(kept_alive(partial(Scaled, 11)), run, workers=1)
    assert places.num_away == 5  # those before
