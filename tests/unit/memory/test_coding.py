"""Values on the shelf come back with the same types, strides and bits."""

import math
import pathlib
import pickle

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from stoker.memory.store import NotStorable, Value, encode, is_alone, is_valid
from stoker.memory.store.coding.layout import HEAD

PLAIN = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.complex_numbers(),
    st.text(),
    st.binary(),
)
NESTED = st.recursive(
    PLAIN,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=4).map(tuple),
        st.dictionaries(st.one_of(st.text(), st.integers()), inner, max_size=4),
    ),
    max_leaves=12,
)


def there_and_back(value, copied=False):
    assert is_valid(memoryview(b"".join(encode((value,)))))
    memory = bytearray(b"".join(encode(value)))
    return Value(memoryview(memory)).build(copied)


def same(a, b):
    if type(a) is not type(b):
        return False
    if isinstance(a, float):
        return a.hex() == b.hex() if not math.isnan(a) else math.isnan(b)
    if isinstance(a, complex):
        return same(a.real, b.real) and same(a.imag, b.imag)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return list(a) == list(b) and all(map(same, a.values(), b.values()))
    return a == b


@given(NESTED)
@settings(deadline=None)
def test_plain_values_come_back(value):
    try:
        found = there_and_back(value)
    except NotStorable as error:
        assert "nested" in str(error)
    else:
        assert same(found, value)


@given(NESTED)
@settings(deadline=None)
def test_equal_values_give_equal_bytes(value):
    try:
        first = b"".join(encode(value))
    except NotStorable:
        return
    assert b"".join(encode(there_and_back(value))) == first


TENSORS = {
    "float": torch.randn(3, 4),
    "permuted": torch.randn(3, 4, 5).permute(2, 0, 1),
    "half": torch.randn(7).half(),
    "bfloat": torch.randn(7).bfloat16(),
    "bool": torch.tensor([True, False]),
    "none": torch.empty(0, 3),
    "scalar": torch.tensor(3),
    "of one": torch.zeros(1, 1, 5),
    "complex": torch.randn(3, dtype=torch.complex64),
}


@pytest.mark.parametrize("copied", [False, True])
@pytest.mark.parametrize("tensor", TENSORS.values(), ids=TENSORS)
def test_tensors_come_back(tensor, copied):
    found, label = there_and_back((tensor, 3), copied)
    assert (found.dtype, found.shape, found.stride()) == (
        tensor.dtype,
        tensor.shape,
        tensor.stride(),
    )
    assert torch.equal(found, tensor)
    assert label == 3


ARRAYS = {
    "float": np.random.randn(3, 4),
    "fortran": np.asfortranarray(np.random.randn(3, 4)),
    "transposed": np.random.randn(3, 4, 5).transpose(1, 2, 0),
    "big-endian": np.arange(5, dtype=">i4"),
    "scalar": np.array(3.0),
    "none": np.empty((0, 2)),
    "uint8": np.arange(200, dtype=np.uint8),
}


@pytest.mark.parametrize("copied", [False, True])
@pytest.mark.parametrize("array", ARRAYS.values(), ids=ARRAYS)
def test_arrays_come_back(array, copied):
    found = there_and_back({"x": array, "y": np.float32(2.5)}, copied)
    assert (found["x"].dtype, found["x"].shape, found["x"].strides) == (
        array.dtype,
        array.shape,
        array.strides,
    )
    assert np.array_equal(found["x"], array)
    assert found["x"].flags.writeable
    assert type(found["y"]) is np.float32


@pytest.mark.parametrize("size", [(37, 21), (700, 401), (0, 5)])
@pytest.mark.parametrize("mode", ["L", "RGB", "RGBA", "1", "F", "I", "CMYK"])
def test_images_come_back(mode, size):
    image = Image.radial_gradient("L").convert(mode).resize((max(size[0], 1), size[1]), 0)
    image = image.crop((0, 0, *size))
    image.info = {"dpi": (72, 72)}
    found = there_and_back(image)
    assert type(found) is Image.Image
    assert (found.mode, found.size, found.info) == (image.mode, image.size, image.info)
    assert found.tobytes() == image.tobytes()
    assert vars(found).keys() == vars(image).keys()
    if 0 not in size:
        found.putpixel((0, 0), 0)


def test_images_are_equal_whatever_lies_beside_their_colours():
    image = Image.radial_gradient("L").convert("RGB").resize((640, 480))
    beside = image.tobytes("raw", "RGBX")
    other = Image.frombytes("RGB", image.size, image.tobytes())
    assert other.tobytes("raw", "RGBX") != beside
    assert b"".join(encode(image)) == b"".join(encode(other))


@pytest.mark.parametrize("kind", [pathlib.Path, pathlib.PurePosixPath])
def test_paths_come_back(kind):
    found = there_and_back((kind("/a/b.wav"), kind(".")))
    assert found == (kind("/a/b.wav"), kind("."))
    assert type(found[0]) is type(kind("x"))


def test_a_copy_is_the_scripts_own():
    value = torch.zeros(5), np.zeros(5)
    memory = bytearray(b"".join(encode(value)))
    tensor, array = Value(memoryview(memory)).build(copied=True)
    tensor += 1
    array += 1
    again, array_again = Value(memoryview(memory)).build(copied=False)
    assert again.sum() == 0
    assert array_again.sum() == 0


class Own(list):
    pass


SHARED = torch.zeros(4)
REFUSED = {
    "a class of the user's": Own(),
    "an object": object(),
    "a tensor that is wanted for gradients": torch.zeros(2, requires_grad=True),
    "a part of a tensor": torch.zeros(4, 4)[:, :1],
    "a sparse tensor": torch.zeros(2, 2).to_sparse(),
    "a parameter": torch.nn.Parameter(torch.zeros(2)),
    "two views of one memory": (SHARED, SHARED[1:]),
    "a read-only array": np.frombuffer(b"12345678"),
    "objects": np.array([object()]),
    "a memory-mapped kind": np.zeros(3).view(np.recarray),
    "an image with a palette": Image.new("P", (2, 2)),
    "keys of another kind": {1.5: 2},
}


@pytest.mark.parametrize("value", REFUSED.values(), ids=REFUSED)
def test_what_could_not_come_back_is_refused(value):
    with pytest.raises(NotStorable):
        encode(value)


def test_memory_that_others_see_is_refused():
    tensor = torch.zeros(100)
    start = tensor.data_ptr()
    with pytest.raises(NotStorable, match="shares memory"):
        encode(tensor, [(start, start + 400)])


def test_alone_is_what_nothing_else_holds():
    inner = [1, 2]
    assert is_alone([[3, [4]]], 0)
    assert is_alone([(1, "a")], 0)
    assert is_alone([torch.zeros(3)], 0)
    assert not is_alone([inner], 0)
    assert not is_alone([{"x": inner}], 0)
    for immutable in (7, "text", pathlib.Path("/a"), np.float32(2)):
        assert is_alone([immutable], 0)


class Calls:
    def __reduce__(self):
        return print, ("called",)


def test_nothing_in_a_value_is_called(capsys):
    described = pickle.dumps(("v", Calls()), protocol=4)
    head = HEAD.pack(len(described), 0) + described
    with pytest.raises(pickle.UnpicklingError):
        Value(memoryview(head))
    assert capsys.readouterr().out == ""


def test_images_that_share_anything_are_not_alone():
    def made():
        return Image.new("RGB", (4, 3))

    def one_dict():
        twin = Image.Image()
        twin.__dict__ = (image := made()).__dict__
        return [image, twin]

    def one_info():
        image, other = made(), made()
        other.info = image.info
        return [image, other]

    def one_core():
        image, other = made(), made()
        other._im = image._im
        return [image, other]

    assert is_alone([[made(), made().crop((0, 0, 2, 2))]], 0)
    for shared in (one_dict, one_info, one_core):
        assert not is_alone([shared()], 0), shared.__name__
        assert not is_alone(shared(), 0), shared.__name__
