"""Tensors and arrays of few values: kept as bytes and tables, built where a batch wants them."""

import ctypes

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from stoker.memory.store import Value, encode, is_valid
from stoker.memory.store.coding import encoding
from stoker.wire.palette import LIBRARY, palette

needs_library = pytest.mark.skipif(
    palette is None, reason=f"{LIBRARY.name} was not built here (no C compiler?)"
)
DTYPES = [
    torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.int64, torch.int32,
    torch.int16, torch.complex64,
]  # fmt: skip


def normalised(*shape, dtype=torch.float32):
    """Each outermost plane has values of its own, 200 of them; NaN and -0.0 among them."""
    draw = torch.Generator().manual_seed(len(shape))
    planes = []
    for k in range(shape[0]):
        values = torch.randn(200, generator=draw) * 1000 + k
        values[:3] = torch.tensor([float("nan"), -0.0, float("inf")])
        if not dtype.is_floating_point and not dtype.is_complex:
            values[:3] = 7
        planes.append(values.to(dtype)[torch.randint(0, 200, shape[1:], generator=draw)])
    return torch.stack(planes)


def bits(tensor):
    flat = tensor.contiguous().flatten()
    return ctypes.string_at(flat.data_ptr(), flat.nbytes)


def shown_of(tensor):
    """The shape and strides of a view's base; None of a tensor that is no view."""
    return (tensor._base.shape, tensor._base.stride()) if tensor._is_view() else None


def same(found, tensor, for_batch=False):
    return (
        type(found) is type(tensor)
        and (found.dtype, found.shape, found.stride()) == (tensor.dtype, tensor.shape, tensor.stride())
        and bits(found) == bits(tensor)
        and found.untyped_storage().nbytes() == tensor.untyped_storage().nbytes()
        and shown_of(found) == (None if for_batch else shown_of(tensor))
    )  # fmt: skip


def memory_of(value, for_batch=False):
    assert is_valid(memoryview(b"".join(encode((value,), for_batch=for_batch))))
    return bytearray(b"".join(encode(value, for_batch=for_batch)))


def read(memory, copied=False):
    return Value(memoryview(memory)).build(copied)


@needs_library
@pytest.mark.parametrize("for_batch", [False, True])
@pytest.mark.parametrize("copied", [False, True])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_tensors_of_few_values_take_a_byte_an_element(dtype, copied, for_batch):
    tensor = normalised(3, 71, 73, dtype=dtype)
    memory = memory_of(tensor, for_batch)
    assert len(memory) < tensor.numel() + 3 * (256 * dtype.itemsize + 64) + 256
    assert same(read(memory, copied), tensor, for_batch)
    assert memory_of(tensor.clone(), for_batch) == memory


ORDERS = {
    "planes": normalised(3, 64, 64),
    "all alike": normalised(1, 12288)[0],
    "video": normalised(12, 40, 50).view(4, 3, 40, 50),
    "channels last": normalised(3, 64, 64).permute(1, 2, 0).contiguous().permute(2, 0, 1),
    "transposed": normalised(3, 64, 64).transpose(1, 2),
    "too many values": torch.randn(3, 64, 64),
    "too many in the last": torch.cat([normalised(2, 64, 64), torch.randn(1, 64, 64)]),
    "small": normalised(3, 16, 16),
    "bytes": torch.randint(0, 255, (3, 99, 99), dtype=torch.uint8),
}


@pytest.mark.parametrize("has_library", [pytest.param(True, marks=needs_library), False])
@pytest.mark.parametrize("for_batch", [False, True])
@pytest.mark.parametrize("copied", [False, True])
@pytest.mark.parametrize("tensor", ORDERS.values(), ids=ORDERS)
def test_tensors_of_any_order_come_back(tensor, copied, for_batch, has_library, monkeypatch):
    if not has_library:
        monkeypatch.setattr(encoding, "palette", None)
    memory = memory_of({"x": tensor, "y": tensor.numpy().copy("K")}, for_batch)
    found = read(memory, copied)
    assert same(found["x"], tensor, for_batch)
    array = tensor.numpy()
    assert (found["y"].dtype, found["y"].strides) == (array.dtype, array.strides)
    assert found["y"].flags.writeable
    assert found["y"].tobytes() == array.tobytes()


@settings(deadline=None, max_examples=60)
@given(
    shape=st.lists(st.integers(1, 40), min_size=1, max_size=4),
    order=st.randoms(use_true_random=False),
    num_values=st.integers(1, 400),
    for_batch=st.booleans(),
)
def test_any_shape_comes_back(shape, order, num_values, for_batch):
    dims = list(range(len(shape)))
    order.shuffle(dims)
    values = torch.randn(num_values)
    tensor = values[torch.randint(0, num_values, shape)].permute(dims)
    memory = memory_of(tensor, for_batch)
    assert same(read(memory), tensor, for_batch)


def rows_like(*tensors, num=3):
    """Rows of a batch for one sample: each the second of `num`, all bits set."""
    made = [torch.zeros(num, *t.shape, dtype=t.dtype) for t in tensors]
    for whole in made:
        ctypes.memset(whole.data_ptr(), 0xFF, whole.nbytes)
    return made, [whole.unbind()[1] for whole in made]


SAMPLES = {
    "coded": normalised(3, 64, 64),
    "raw": torch.randn(3, 64, 64),
    "large and raw": torch.randn(3, 128, 128),
    "channels last": ORDERS["channels last"],
    "raw and channels last": torch.randn(64, 64, 3).permute(2, 0, 1),
    "odd size": torch.randn(7),
}


@pytest.mark.parametrize("num", [3, 200])  # the larger ones with streaming stores
@pytest.mark.parametrize("sample", SAMPLES.values(), ids=SAMPLES)
def test_a_tensor_is_written_into_its_row_and_nowhere_else(sample, num):
    (whole,), (row,) = rows_like(sample, num=num)
    value = ("first", {"": (sample, 5)})
    items = Value(memoryview(memory_of(value, for_batch=True))).items(False, {(0,): row})
    assert next(items) == "first"
    found, label = next(items)[""]
    assert found is row
    assert label == 5
    assert bits(whole[1]) == bits(sample)
    assert set(bits(whole[0]) + bits(whole[2])) == {0xFF}


def test_tensors_that_are_not_like_their_row_leave_it_alone():
    sample = normalised(3, 64, 64)
    for row_for in (sample.double(), sample[:2], sample.transpose(0, 1), sample.flatten()):
        (whole,), (row,) = rows_like(row_for)
        items = Value(memoryview(memory_of((1, {"": sample}), for_batch=True))).items(
            False, {(): row}
        )
        found = [*items][1][""]
        assert found is not row
        assert same(found, sample, for_batch=True)
        assert set(bits(whole)) == {0xFF}


def test_each_tensor_of_a_sample_finds_its_own_row():
    a, b, c = normalised(3, 64, 64), torch.randn(3, 64, 64), torch.randn(5)
    (_, _, _), (row_a, row_b, row_c) = rows_like(a, b, c)
    rows = {("x", 1, "mask"): row_a, ("x", 0): row_b, ("z",): row_c}
    sample = {"z": torch.randn(6), "x": [b, {"mask": a, "more": "text"}]}
    items = Value(memoryview(memory_of((1, {"": sample}), for_batch=True))).items(False, rows)
    found = [*items][1][""]
    assert found["x"][0] is row_b
    assert found["x"][1]["mask"] is row_a
    assert found["z"] is not row_c
    assert bits(row_a) == bits(a)
    assert bits(row_b) == bits(b)


def test_what_is_shorter_than_it_tells_is_not_read_beyond_its_end():
    memory = memory_of(normalised(3, 64, 64))
    with pytest.raises(ValueError, match="shorter"):
        read(memory[:-64])
