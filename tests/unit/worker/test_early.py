"""A sample moves early where nobody can tell; what fetching returns or raises is torch's."""

import gc
import weakref

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset, Subset, _DatasetKind, _utils, default_collate
from torch.utils.data._utils import collate as torch_collate

from stoker.memory import phases
from stoker.memory.phases import Phase
from stoker.memory.stand_in import Memory, Remembering
from stoker.memory.store import ShelfAccess, make_shelf
from stoker.memory.store import shelf as shelf_module
from stoker.wire.stream_copy import LIBRARY, stream_copy
from stoker.worker import collate
from stoker.worker.early import MAX_TO_SKIP, Early
from stoker.worker.job import Job
from tests.equality.remembering import values_open

NUM = 5
SHAPE = (3, 7)


class Made(Dataset):
    """Samples as a function makes them; `kept` is the dataset's own past."""

    def __init__(self, make):
        self.make = make
        self.kept = []
        self.num_made = 0

    def __getitem__(self, index):
        self.num_made += 1
        return self.make(self, index)


def fresh(index):
    return torch.full(SHAPE, float(index)).add_(0.5)


def kept(self, index):
    self.kept.append(fresh(index))
    return self.kept[-1]


def in_a_kept_tuple(self, index):
    self.kept.append((fresh(index), index))
    return self.kept[-1]


def in_a_kept_list(self, index):
    self.kept.append([fresh(index), index])
    return self.kept[-1]


def in_a_kept_dict(self, index):
    self.kept.append({"x": fresh(index)})
    return self.kept[-1]


def a_view_is_kept(self, index):
    x = fresh(index)
    self.kept.append(x[0])
    return x


def an_array_is_kept(self, index):
    x = fresh(index)
    self.kept.append(x.numpy())
    return x


def a_storage_is_kept(self, index):
    x = fresh(index)
    self.kept.append(x.untyped_storage())
    return x


def weakly_kept(self, index):
    x = fresh(index)
    self.kept.append(weakref.ref(x))
    return x


def of_a_kept_array(self, index):
    array = np.full(SHAPE, float(index), np.float32)
    self.kept.append(array)
    return torch.from_numpy(array)


def a_part_of_what_is_kept(self, index):
    self.kept.append(torch.zeros(2, *SHAPE) + index)
    return self.kept[-1][1]


def with_an_attribute(self, index):
    x = fresh(index)
    x.name = f"sample {index}"
    return x


def kept_in_a_graph(self, index):
    x = fresh(index)
    w = torch.ones(SHAPE, requires_grad=True)
    self.kept.append((x * w).grad_fn)  # holds x in C++ alone
    return x


def shared_with_processes(_, index):
    return fresh(index).share_memory_()


def twice(self, index):
    x = fresh(index)
    return x, x


SEEN = (
    kept, in_a_kept_tuple, in_a_kept_list, in_a_kept_dict, a_view_is_kept, an_array_is_kept,
    a_storage_is_kept, weakly_kept, of_a_kept_array, a_part_of_what_is_kept, with_an_attribute,
    kept_in_a_graph, shared_with_processes, twice,
)  # fmt: skip

UNSEEN = {
    "tensor": lambda _, i: fresh(i),
    "tuple": lambda _, i: (fresh(i), i),
    "list": lambda _, i: [str(i), fresh(i)],
    "dict": lambda _, i: {"y": i, "x": fresh(i)},
    "nested": lambda _, i: (fresh(i), [i, {"mask": fresh(-i) > 0}]),
    "two of them": lambda _, i: (fresh(i), fresh(-i)),
}

ODD = {
    "shapes differ": lambda _, i: fresh(i)[: 2 if i == 3 else 3].clone(),
    "dtypes differ": lambda _, i: fresh(i).double() if i == 3 else fresh(i),
    "first is odd": lambda _, i: fresh(i).t() if i == 0 else torch.zeros(7, 3),
    "keys differ": lambda _, i: {"x": fresh(i), "y": 1} if i < 3 else {"x": fresh(i)},
    "sizes differ": lambda _, i: (fresh(i), 1) if i < 3 else (fresh(i),),
    "kinds differ": lambda _, i: fresh(i) if i < 3 else [fresh(i)],
    "raises": lambda _, i: fresh(i) if i < 3 else [][i],
    "none": lambda _, i: fresh(i) if i < 3 else None,
    "gradients": lambda _, i: fresh(i).requires_grad_(),
    "sparse": lambda _, i: fresh(i).to_sparse(),
    "last is kept": lambda self, i: fresh(i) if i < NUM - 1 else kept(self, i),
    "deep": lambda _, i: [[[[fresh(i)]]]],
}


@pytest.fixture
def early(monkeypatch):
    """Ours is at work in this process, and small samples are large enough for it."""
    if stream_copy is None:
        pytest.skip(f"{LIBRARY.name} was not built here (no C compiler?)")
    info = _utils.worker.WorkerInfo(id=0, num_workers=1, seed=0, dataset=None)
    monkeypatch.setattr(_utils.worker, "_worker_info", info)
    monkeypatch.setattr(collate, "SAMPLE_NBYTES", 1)
    monkeypatch.setattr(collate, "STREAM_NBYTES", 1)
    functions = torch_collate.default_collate_fn_map
    monkeypatch.setitem(functions, torch.Tensor, torch_collate.collate_tensor_fn)
    return Moves()


class Moves(Early):
    """Early, telling which samples moved."""

    def __init__(self):
        super().__init__(self.tell)
        self.num_moved = 0
        assert collate.stack_faster(self.batch_of)

    def tell(self, destination, sources, nbytes):
        self.num_moved += 1
        stream_copy(destination, sources, nbytes)


def fetchers(early, make, collate_fn=default_collate):
    """torch's alone, and ours, over equal datasets."""
    both = []
    for around in (lambda fetcher, _: fetcher, early.around):
        dataset = make if isinstance(make, Dataset) else Made(make)
        job = Job(_DatasetKind.Map, dataset, True, collate_fn, False, 0, None, 1)
        fetcher = _DatasetKind.create_fetcher(_DatasetKind.Map, dataset, True, collate_fn, False)
        both.append(around(fetcher, job))
    return both


def outcome(fetcher, indices=range(NUM)):
    try:
        return described(fetcher.fetch(indices))
    except Exception as error:
        return type(error), str(error)


def described(batch):
    if isinstance(batch, torch.Tensor):
        dense = batch.to_dense()
        return (
            dense.tolist(), batch.dtype, batch.shape, dense.stride(), batch.storage_offset()
            if batch.layout is torch.strided else None, batch.requires_grad, batch._is_view(),
        )  # fmt: skip
    if isinstance(batch, dict):
        return {key: described(x) for key, x in batch.items()}
    if isinstance(batch, (list, tuple)):
        return type(batch), [described(x) for x in batch]
    return batch


@pytest.mark.parametrize("kind", UNSEEN)
def test_what_nobody_sees_moves(early, kind):
    plain, ours = fetchers(early, UNSEEN[kind])
    for _ in range(3):
        assert outcome(ours) == outcome(plain)
    num_tensors = 2 if kind in ("nested", "two of them") else 1
    assert early.num_moved == 3 * NUM * num_tensors


@pytest.mark.parametrize("make", SEEN, ids=lambda make: make.__name__)
def test_what_somebody_sees_stays(early, make):
    plain, ours = fetchers(early, make)
    assert outcome(ours) == outcome(plain)
    assert early.num_moved == 0


@pytest.mark.parametrize("kind", ODD)
def test_odd_samples_end_as_under_torch(early, kind):
    plain, ours = fetchers(early, ODD[kind])
    for _ in range(3):
        assert outcome(ours) == outcome(plain)


def test_a_moved_sample_is_freed_before_the_next_is_made(early):
    alive = []

    def make(_, index):
        gc.collect()
        alive.append(sum(type(x) is torch.Tensor and x.shape == SHAPE for x in gc.get_objects()))
        return fresh(index)

    _, ours = fetchers(early, make)
    ours.fetch(range(NUM))
    assert alive == [0] + [NUM] * (NUM - 1), "the rows of the batch, and nothing else"


def test_the_scripts_default_device_is_not_asked(early):
    """A forked worker that touches CUDA dies of it, so this one must not."""

    class Device(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            made_here = function is torch.empty and "device" not in (kwargs or {})
            assert not made_here, "on whatever the default is"
            return function(*args, **(kwargs or {}))

    with Device():
        assert Early()._unseen == early._unseen


def test_samples_that_repeat_an_index_move_too(early):
    plain, ours = fetchers(early, UNSEEN["tuple"])
    assert outcome(ours, [2, 2, 0]) == outcome(plain, [2, 2, 0])
    assert early.num_moved == 3


def test_every_batch_has_its_own_memory(early):
    _, ours = fetchers(early, UNSEEN["tensor"])
    first = ours.fetch(range(NUM))
    second = ours.fetch(range(1, NUM + 1))
    assert first.data_ptr() != second.data_ptr()
    assert first[0, 0, 0] == 0.5


@pytest.mark.parametrize("indices", [list, lambda: (1, 2), lambda: iter([1, 2])])
def test_odd_index_lists(early, indices):
    plain, ours = fetchers(early, UNSEEN["tensor"])
    assert outcome(ours, indices()) == outcome(plain, indices())


@pytest.mark.parametrize("why", ["collate_fn", "__getitems__", "subset"])
def test_jobs_that_are_left_to_torch(early, why):
    def collate_fn(samples):
        return default_collate(samples)

    class Many(Made):
        def __getitems__(self, indices):
            return [self[i] for i in indices]

    make = UNSEEN["tensor"]
    dataset = {"__getitems__": Many(make), "subset": Subset(Made(make), range(NUM))}.get(why, make)
    _, fetcher = fetchers(early, dataset, collate_fn if why == "collate_fn" else default_collate)
    assert fetcher is not early


def test_a_loader_in_which_nothing_moves_is_looked_at_ever_more_rarely(early):
    _, ours = fetchers(early, kept)
    looks = []
    for number in range(4 * MAX_TO_SKIP):
        before = early._num_to_skip
        was_due = not early._num_left_to_skip
        ours.fetch(range(NUM))
        looks += [number] * was_due
        assert early._num_to_skip >= before
    assert looks == [0, 2, 6, 14, 30, 62, 126, 254, 510, 766]


def test_it_is_looked_at_always_again_once_something_moves(early):
    _, ours = fetchers(
        early, lambda self, i: fresh(i) if self.num_made > 20 * NUM else kept(self, i)
    )
    for _ in range(100):
        ours.fetch(range(NUM))
    assert early._num_to_skip == 0
    assert early.num_moved == (100 - 30) * NUM


# -- samples that are remembered -------------------------------------------------------------------


class Scene(Dataset):
    """Samples that take long enough to be remembered, and one that fails."""

    def __init__(self, make):
        self.make = make
        self.fails = False

    def __len__(self):
        return 20

    def __getitem__(self, index):
        if self.fails:
            raise LookupError(index)
        return self.make(sum(k % 7 for k in range(20_000)) * 0 + index)


def levels(index):
    draw = torch.Generator().manual_seed(index)
    return torch.linspace(-2, 2, 256)[torch.randint(0, 256, (3, 64, 64), generator=draw)]


REMEMBERED = {
    "coded": levels,
    "raw": lambda i: torch.randn(3, 64, 64, generator=torch.Generator().manual_seed(i)),
    "channels last": lambda i: levels(i).permute(1, 2, 0).contiguous().permute(2, 0, 1),
    "tuple": lambda i: (levels(i), i),
    "dict": lambda i: {"x": levels(i), "y": [(levels(i)[0] > 0).long(), str(i)]},
    "shapes differ": lambda i: levels(i)[: 2 + (i < 15)].clone(),
}


def remembered(kind, early, monkeypatch, wrapped=lambda whole: whole):
    """A place that serves, its fetcher, and torch's. No fixture: pytest tells the environment, on
    which samples may depend, when the call begins."""
    monkeypatch.setattr(collate, "LARGE_NBYTES", 1)
    monkeypatch.setattr(phases, "may_write", lambda *_: True)
    dataset = Scene(REMEMBERED[kind])
    memory = Memory(ShelfAccess(make_shelf(1 << 26), 0, b"loader", False), is_only_worker=True)
    job = Job(_DatasetKind.Map, wrapped(dataset), True, default_collate, False, 0, None, 1)
    both = [
        _DatasetKind.create_fetcher(_DatasetKind.Map, each, True, default_collate, False)
        for each in (job.dataset, wrapped(Scene(dataset.make)))
    ]
    stand_in = both[0].dataset = memory.around(job.dataset, default_collate)
    ours = early.around(both[0], job, stand_in, memory)
    assert ours is early
    inner = stand_in
    while not isinstance(inner, Remembering):
        inner = inner.dataset  # of a Subset
    place = inner._get.__self__
    while place._phase is not Phase.SERVING:
        assert place._phase is not Phase.OFF or not place._tally.known()[1]
        assert outcome(ours) == outcome(both[1])
        for start in range(5, 20, 5):
            assert outcome(ours, range(start, start + 5)) == outcome(
                both[1], range(start, start + 5)
            )
    return place, ours, both[1]


@pytest.mark.parametrize("kind", REMEMBERED)
def test_remembered_samples_are_made_in_their_rows(kind, early, monkeypatch):
    place, ours, plain = remembered(kind, early, monkeypatch)
    monkeypatch.setattr(phases, "must_check", lambda *_: False)
    monkeypatch.setattr(place, "_owes_proof", lambda: False)
    early.num_moved, early._num_left_to_skip = 0, 0
    for indices in ([1, 2, 3, 4, 0], [5, 6, 7, 5, 5], [9], [12, 13, 14, 15, 16]):
        assert outcome(ours, indices) == outcome(plain, indices)
    if kind != "shapes differ":
        num_tensors = 2 if kind == "dict" else 1
        assert early.num_moved == 4 * num_tensors, "the first of each batch alone is copied"


def test_remembered_samples_of_a_subset_are_made_in_their_rows_too(early, monkeypatch):
    monkeypatch.setattr(phases, "must_check", lambda *_: False)
    _, ours, plain = remembered("tuple", early, monkeypatch, lambda whole: Subset(whole, range(20)))
    early.num_moved, early._num_left_to_skip = 0, 0
    for indices in ([1, 2, 3, 4, 0], [5, 6, 7, 5, 5]):
        assert outcome(ours, indices) == outcome(plain, indices)
    assert early.num_moved == 2


@pytest.mark.parametrize("kind", REMEMBERED)
def test_an_error_after_remembered_samples_is_the_datasets(kind, early, monkeypatch):
    place, ours, plain = remembered(kind, early, monkeypatch)
    memory_of = place._desk.stores.memory_of
    monkeypatch.setattr(
        place._desk.stores,
        "memory_of",
        lambda kept: memory_of(kept) if kept.entry.offset % 3 == 0 else None,
    )
    place._dataset.fails = plain.dataset.fails = True
    assert outcome(ours)[0] is LookupError is outcome(plain)[0]
    place._dataset.fails = plain.dataset.fails = False
    assert outcome(ours) == outcome(plain)


@pytest.mark.parametrize("kind", REMEMBERED)
def test_damage_between_two_samples_of_a_batch_is_in_no_batch(kind, early, monkeypatch):
    place, ours, plain = remembered(kind, early, monkeypatch)
    early._num_left_to_skip = 0
    shelf, span = place._desk.seat.shelf, place._desk.seat.shelf._tails[0]
    values = shelf._arena.view(shelf_module._SEATS_AT, span)
    with values_open(shelf):
        for at in range(777, span, 4096):
            values[at] ^= 0x10
    for start in range(0, 20, 5):
        indices = range(start, start + 5)
        assert outcome(ours, indices) == outcome(plain, indices)
