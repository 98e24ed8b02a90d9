"""What comes out equals what went in; where it lies, and for how long."""

import gc
import weakref

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from stoker.wire.arena.arena import Arena
from stoker.wire.arena.heap import Heap, Room
from stoker.wire.arena.lender import Lender
from stoker.wire.batch_codec import LARGE_NBYTES, decode, dumps, encode, loads
from stoker.wire.frame import INLINE, PLACE

LARGE = 3 * LARGE_NBYTES  # bytes
ALIGN_NBYTES = 64


class Side:
    """Both ends of one worker's arena, in one process. nbytes=None: no arena at all."""

    def __init__(self, nbytes=1 << 22):
        self.arena = None if nbytes is None else Arena(nbytes)
        self.heap = None if nbytes is None else Heap(Room(self.arena))
        self.lender = None if nbytes is None else Lender(self.arena)
        self.offsets = []

    def carry(self, batch, copies=False):
        encoded = encode(batch, self.heap)
        self.offsets = [offset for offset, _, _ in PLACE.iter_unpack(encoded.table)]
        blob = memoryview(bytearray(b"".join(encoded.inline_parts())))
        if encoded.blob_offset != INLINE:
            self.offsets.append(encoded.blob_offset)
            blob = self.lender.lend(encoded.blob_offset, encoded.blob_nbytes)
        out = decode(
            memoryview(encoded.table), encoded.num_storages, encoded.stream_nbytes,
            blob, self.lender, copies,
        )  # fmt: skip
        if encoded.blob_offset == INLINE:
            blob[:] = b"\xff" * len(blob)  # the channel's buffer is used again
        return out

    @property
    def num_lent(self):
        return len(self.lender.lent())

    def give_back(self):
        gc.collect()
        for offset in self.lender.take_returned():
            self.heap.drop(offset)
        self.heap.allocate(1)  # buries the worker's own views
        return self.num_lent


@pytest.fixture(params=[1 << 22, 8192, None], ids=["arena", "full arena", "no arena"])
def side(request):
    return Side(request.param)


def same(one, other):
    assert type(one) is type(other)
    if isinstance(one, torch.Tensor):
        assert (one.dtype, one.shape, one.stride()) == (other.dtype, other.shape, other.stride())
        assert torch.equal(one.resolve_conj(), other.resolve_conj())
    elif isinstance(one, np.ndarray):
        assert (one.dtype, one.shape, one.strides) == (other.dtype, other.shape, other.strides)
        assert np.array_equal(one, other)
    elif isinstance(one, dict):
        assert list(one) == list(other)
        same(list(one.values()), list(other.values()))
    elif isinstance(one, (list, tuple)):
        assert len(one) == len(other)
        for a, b in zip(one, other, strict=True):
            same(a, b)
    else:
        assert one == other


BATCHES = {
    "large": lambda: torch.arange(LARGE // 4, dtype=torch.float32),
    "small": lambda: torch.arange(5),
    "0-d": lambda: torch.tensor(3.5),
    "empty": lambda: torch.empty(0, 7),
    "bool": lambda: torch.tensor([True, False]),
    "bfloat16": lambda: torch.arange(LARGE).to(torch.bfloat16),
    "complex": lambda: torch.arange(LARGE // 8) * (1 + 2j),
    "transposed": lambda: torch.arange(LARGE).reshape(-1, 64).t(),
    "trimmed": lambda: torch.arange(LARGE)[1001:1100],
    "stepped": lambda: torch.arange(LARGE)[3::7],
    "expanded": lambda: torch.arange(3)[:, None].expand(3, 1000),
    "array": lambda: np.arange(LARGE),
    "Fortran array": lambda: np.asfortranarray(np.arange(LARGE).reshape(64, -1)),
    "small array": lambda: np.arange(4.0),
    "array of strings": lambda: np.array(["a", "bc"]),
    "bytes": lambda: b"x" * LARGE,
    "string": lambda: "x" * LARGE,
    "nested": lambda: {"x": [torch.arange(LARGE), (np.arange(LARGE), "a", None)], 1: torch.ones(2)},
}  # fmt: skip


@pytest.mark.parametrize("copies", [False, True], ids=["shown", "copied"])
@pytest.mark.parametrize("make", BATCHES.values(), ids=BATCHES)
def test_a_batch_comes_out_as_it_went_in(side, make, copies):
    batch = make()
    same(side.carry(batch, copies), batch)


@pytest.mark.parametrize("make", BATCHES.values(), ids=BATCHES)
def test_alone_in_bytes_it_comes_out_as_it_went_in(make):
    batch = make()
    same(loads(dumps(batch)), batch)


@given(st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.binary(max_size=20),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner) | st.tuples(inner, inner),
))  # fmt: skip
def test_plain_values_come_out_as_they_went_in(value):
    assert loads(dumps(value)) == value


@settings(max_examples=60, deadline=None)
@given(
    size=st.lists(st.integers(0, 40), min_size=1, max_size=3),
    start=st.integers(0, 40_000),
    step=st.integers(1, 3),
    dtype=st.sampled_from([torch.uint8, torch.int16, torch.float64, torch.complex128]),
)
def test_any_view_of_a_large_storage_is_the_same_view(size, start, step, dtype):
    whole = torch.arange(260_000).to(dtype)
    strides = [step * 41**i for i in range(len(size))]
    view = whole.as_strided(size, strides, start)
    same(Side().carry(view), view)


def test_views_of_one_storage_still_share_it(side):
    whole = torch.zeros(LARGE)
    one, other = side.carry((whole[:100], whole[50:]))
    one[60] = 7
    assert other[10] == 7


def test_two_tensors_of_their_own_do_not_share(side):
    one, other = side.carry((torch.zeros(LARGE), torch.zeros(LARGE)))
    one.fill_(1)
    assert other.sum() == 0


def test_what_arrives_may_be_written(side):
    tensor, array = side.carry((torch.zeros(LARGE), np.zeros(LARGE)))
    tensor[0] = array[0] = 1
    assert tensor[0] == array[0] == 1


def test_a_read_only_array_stays_read_only_in_its_values(side):
    array = np.arange(LARGE)
    array.flags.writeable = False
    assert np.array_equal(side.carry(array), array)


@pytest.mark.parametrize("copies", [False, True], ids=["shown", "copied"])
def test_large_tensors_are_aligned(side, copies):
    tensors = side.carry([torch.ones(LARGE + i, dtype=torch.uint8) for i in range(4)], copies)
    assert [t.data_ptr() % ALIGN_NBYTES for t in tensors] == [0] * 4


@pytest.mark.parametrize("copies", [False, True], ids=["shown", "copied"])
def test_small_tensors_are_aligned(side, copies):
    tensors = side.carry([torch.ones(1 + i, dtype=torch.uint8) for i in range(20)], copies)
    assert [t.data_ptr() % ALIGN_NBYTES for t in tensors] == [0] * 20


def test_a_trimmed_view_is_aligned_as_it_was(side):
    whole = torch.arange(LARGE, dtype=torch.uint8)
    assert whole.data_ptr() % ALIGN_NBYTES == 0
    for start in (0, 1, 63, 64, 1000):
        out = side.carry(whole[start : start + 10])
        assert out.data_ptr() % ALIGN_NBYTES == start % ALIGN_NBYTES


def test_only_what_is_shown_of_a_large_storage_travels():
    encoded = encode(torch.zeros(1 << 20)[5000:5010], None)
    assert encoded.blob_nbytes < 1000


def test_what_was_born_in_the_arena_is_not_copied():
    side = Side()
    view = side.heap.allocate(LARGE)
    born = torch.frombuffer(view, dtype=torch.uint8)
    out = side.carry(born)
    assert out.data_ptr() == born.data_ptr()


def test_a_full_arena_sends_the_rest_in_the_message():
    side = Side(2 * LARGE)
    batch = [torch.full((LARGE,), i, dtype=torch.uint8) for i in range(4)]
    out = side.carry(batch)
    same(out, batch)
    assert side.offsets.count(INLINE) == 2


def test_without_an_arena_all_is_in_the_message():
    side = Side(None)
    side.carry([torch.zeros(LARGE), np.zeros(LARGE)])
    assert set(side.offsets) == {INLINE}


@pytest.mark.parametrize("make", [torch.zeros, np.zeros], ids=["tensor", "array"])
@pytest.mark.parametrize(
    "derive",
    [lambda x: x[10:20], lambda x: x.reshape(-1, 2)[:, 1], lambda x: [x][0]],
    ids=["slice", "strided", "itself"],
)
def test_an_extent_stays_lent_while_any_view_of_a_view_lives(make, derive):
    side = Side()
    out = side.carry(make(LARGE))
    kept = derive(out)
    del out
    assert side.give_back() == 1
    taken = side.heap.allocate(LARGE)
    np.frombuffer(taken, np.uint8)[:] = 255
    assert not kept.any()
    del kept
    assert side.give_back() == 0


def test_an_array_over_a_lent_tensor_keeps_the_extent():
    side = Side()
    array = side.carry(torch.zeros(LARGE)).numpy()[5:]
    assert side.give_back() == 1
    view = memoryview(array)
    del array
    assert side.give_back() == 1
    del view
    assert side.give_back() == 0


def test_a_tensor_over_a_lent_array_keeps_the_extent():
    side = Side()
    tensor = torch.from_numpy(side.carry(np.zeros(LARGE)))[5:]
    assert side.give_back() == 1
    del tensor
    assert side.give_back() == 0


def test_what_is_copied_holds_no_extent():
    side = Side()
    kept = side.carry([torch.zeros(LARGE), np.zeros(LARGE), "x" * LARGE], copies=True)
    assert side.give_back() == 0
    assert kept[0].sum() == 0


def test_a_large_blob_travels_through_the_arena_and_goes_back():
    side = Side()
    assert side.carry("x" * LARGE) == "x" * LARGE
    assert side.offsets != [] and side.give_back() == 0


def test_an_arena_is_used_again_and_again():
    side = Side(8 * LARGE)
    for i in range(50):
        batch = [torch.full((LARGE,), i % 200, dtype=torch.uint8), np.full(LARGE, i, np.uint8)]
        out = side.carry(batch)
        same(out, batch)
        assert INLINE not in side.offsets
        del out, batch
        assert side.give_back() == 0


def test_what_cannot_be_pickled_raises_what_pickling_raises():
    with pytest.raises(Exception, match=r"lambda|pickle"):
        encode(lambda: None, None)


def test_a_batch_does_not_live_until_the_next_collection():
    tensor = torch.zeros(LARGE)
    gc.disable()
    try:
        seen = weakref.ref(tensor)
        encoded = encode([tensor], None)
        del tensor, encoded
        assert seen() is None
    finally:
        gc.enable()
