"""Values from a disk whose description somebody has made up: none is built, whatever it says."""

import pickle
import random
import sys

import numpy as np
import pytest
import torch
from PIL import Image

from stoker.memory.store import Value, encode, is_valid
from stoker.memory.store.coding.layout import ALIGN_NBYTES, HEAD, dumps, loads
from stoker.wire.palette import palette

TENSOR = torch.arange(24.0).reshape(2, 3, 4)
ARRAY = np.arange(12, dtype=np.int32).reshape(3, 4)
FEW = torch.randint(0, 9, (3, 64, 64)).float()  # kept as a byte an element
IMAGE = Image.new("RGB", (5, 3))
PATH = [("/a", 1, 2, 3, 4)]
SAMPLE = (
    PATH,
    {"x": TENSOR, 3: TENSOR.clone().permute(2, 0, 1), True: FEW},
    [ARRAY, ARRAY.T.copy("K"), torch.rand(3).numpy(), np.float32(2), np.zeros((0, 3))],
    [IMAGE, "text", 1 << 80, 2j, b"x"],
)


def parts_of(value):
    """Return the description of a value, and its buffers."""
    memory = b"".join(encode(value))
    nbytes, _ = HEAD.unpack_from(memory)
    data = memory[HEAD.size : HEAD.size + nbytes]
    return data, memory[-(-(HEAD.size + nbytes) // ALIGN_NBYTES) * ALIGN_NBYTES :]


def joined(data, buffers):
    head = HEAD.pack(len(data), 0) + data
    return memoryview(bytearray(head + bytes(-len(head) % ALIGN_NBYTES) + buffers))


def told_of(value):
    """Return the description of a value alone."""
    return loads(memoryview(parts_of([value])[0]))[1][0]


def says(described, nbytes=1 << 12):
    """Return the bytes of a tuple of one such value, with memory for its elements."""
    return joined(dumps(("t", [described])), bytes(nbytes))


VIEW, ARRAY_VIEW = told_of(TENSOR), told_of(ARRAY)
T, A, I = told_of(TENSOR.clone()), told_of(ARRAY.copy()), told_of(IMAGE)  # noqa: E741 (as their kinds are called)


def nested(kind, depth):
    told = ("v", 1)
    for _ in range(depth):
        told = (kind, [told])
    return told


def nested_plain(depth):
    value = 1
    for _ in range(depth):
        value = [value]
    return ("v", value)


MADE_UP = {
    "an array of objects": ("a", "|O", *A[2:]),
    "an array of a tensor that NumPy has none of": ("y", ("T", "torch.bfloat16", (24,), (1,), 48, 0)),
    "an array of a tensor that is none": ("y", A),
    "an array of records": ("a", "i4,i4", *A[2:]),
    "an array of no type": ("a", "<f3", *A[2:]),
    "a tensor of no type": ("T", "torch.qint8", *T[2:]),
    "more than its bytes": (*T[:2], (10**7,), (1,), *T[4:]),
    "as many as it says, and not there": (*T[:2], (10**7,), (1,), 4 * 10**7, 0),
    "sizes that overflow": (*T[:2], (1 << 62, 4), (4, 1), 0, 0),
    "no elements of a size that overflows": (*T[:2], (0, 1 << 62, 1 << 62), (1, 1, 1), 0, 0),
    "a negative size": (*T[:2], (-24,), (1,), *T[4:]),
    "a size that is no integer": (*T[:2], (24.0,), (1,), *T[4:]),
    "a true size": (*T[:2], (True, 24), (24, 1), *T[4:]),
    "negative bytes": (*T[:2], (24,), (1,), -96, 0),
    "too few strides": (*T[:3], (1,), *T[4:]),
    "strides that overlap": (*T[:3], (0, 4, 1), *T[4:]),
    "strides with gaps": (*T[:3], (24, 4, 1), *T[4:]),
    "negative strides": (*T[:3], (-12, 4, 1), *T[4:]),
    "negative strides of one": (*T[:2], (1, 24), (-24, 1), *T[4:]),
    "strides beyond all memory": (*T[:2], (1, 24), (1 << 63, 1), *T[4:]),
    "a view's strides": (*VIEW[:3], (-1, 4, 1), 0),
    "a view's strides beyond all memory": (*VIEW[:2], (1, 24), (1 << 63, 1), 0),
    "a view behind its memory": (*VIEW[:4], 1),
    "a view of a view": ("w", VIEW, *VIEW[2:]),
    "an array's view before its memory": (*ARRAY_VIEW[:3], (-16, 4), 0),
    "an array's strides that overlap": (*A[:3], (0, 4), *A[4:]),
    "an array's negative strides": (*A[:3], (-16, 4), *A[4:]),
    "an array's odd strides": (*A[:3], (17, 5), *A[4:]),
    "an array's true strides": (*A[:2], (0, 3), (True, 0), 0, 0),
    "more dimensions than NumPy has": (*A[:2], (1,) * 99, (4,) * 99, 4, 0),
    "planes of few elements": (*T[:5], 2),
    "negative planes": (*T[:5], -1),
    "planes that do not divide": (*told_of(FEW)[:5], 7),
    "an image of another size": (*I[:2], (10**5, 10**5), *I[3:]),
    "an image of no height that is too wide": (*I[:2], (1 << 40, 0), *I[3:6], 0),
    "an image of another mode": ("i", "P", *I[2:]),
    "an image of three sides": (*I[:2], (5, 3, 1), *I[3:]),
    "an image with notes that are none": (*I[:3], ("v", 7), *I[4:]),
    "a scalar of objects": ("n", "|O", bytes(8)),
    "a scalar of another size": ("n", "<f8", bytes(4)),
    "lists in lists": nested("l", 30),
    "tuples in tuples": nested("t", 200),
    "plain lists in lists": nested_plain(30),
    "plain lists in many lists": nested_plain(200),
    "a class that is not known": ("s", 4, T, ("v", {})),
    "a class by its number from behind": ("s", -1, T, ("v", {})),
    "a member of anything": ("e", "os", "environ", "HOME"),
    "a key that is a member of anything": ("d", [(("os", "environ", "HOME"), ("v", 1))]),
    "a key that is no key": ("d", [([], ("v", 1))]),
    "a path of another kind": ("p", 7, "/a"),
    "a path of bytes": ("p", 0, b"/a"),
    "a kind that is none": ("x", 1),
    "nothing": (),
    "a number": 7,
}  # fmt: skip


@pytest.mark.parametrize("described", MADE_UP.values(), ids=MADE_UP)
def test_what_nothing_was_encoded_to_is_not_valid(described):
    assert not is_valid(says(described))


@pytest.mark.parametrize("described", [T, A, I], ids=["tensor", "array", "image"])
def test_what_lies_beyond_its_memory_is_not_valid(described):
    assert is_valid(says(described))
    assert not is_valid(says(described, 10))


PICKLES = {
    "a name for each of 4 billion objects": b"\x80\x04Nr\xff\xff\xff\xff.",
    "one object many times": b"\x80\x04]" + b"2\x86" * 60 + b".",
    "what was named before": b"\x80\x04]\x94h\x00\x86.",
    "more text than there is": b"\x80\x04\x8d" + b"\xff" * 7 + b"\x0f" + b"x.",
    "more bytes than there are": b"\x80\x04B\xff\xff\xff\xffx.",
    "a negative integer's length": b"\x80\x04\x8b\xff\xff\xff\xff.",
    "a call": pickle.dumps(("t", [print]), protocol=4),
    "a set": pickle.dumps(("v", ({1, 2},)), protocol=4),
    "no end": b"\x80\x04N",
    "nothing": b"",
}


@pytest.mark.parametrize("data", PICKLES.values(), ids=PICKLES)
def test_a_description_that_takes_more_than_its_bytes_is_not_read(data):
    assert not is_valid(joined(data, b""))


def test_a_head_that_tells_of_more_than_there_is_is_not_valid():
    data, buffers = parts_of(SAMPLE)
    assert is_valid(joined(data, buffers))
    for head in (HEAD.pack(len(data) * 2, 1), HEAD.pack((1 << 32) - 1, 1), b"", b"1234567"):
        assert not is_valid(memoryview(head + data))


def mutated(told, rng):
    """Return a description with something else in one place."""
    odd = (0, 1, -1, 2, 7, 1 << 31, 1 << 62, 1 << 64, 1.5, None, True, "T", "a", "|O", (), [], b"")
    if type(told) in (tuple, list) and told and rng.random() < 0.9:
        at = rng.randrange(len(told))
        return type(told)([*told[:at], mutated(told[at], rng), *told[at + 1 :]])
    if type(told) is int and rng.random() < 0.5:
        return told + rng.choice((-4, -1, 1, 4))
    return rng.choice(odd)


def test_what_is_valid_is_built_without_an_error():
    """Of descriptions with anything else in them, in a place or in a byte."""
    rng = random.Random(3)
    data, buffers = parts_of(SAMPLE)
    told, num_valid = loads(memoryview(data)), 0
    for number in range(1500):
        if number % 2:
            changed = dumps(mutated(told, rng))
        else:
            at = rng.randrange(len(data))
            changed = data[:at] + rng.randbytes(1) + data[at + 1 :]
        memory = joined(changed, buffers)
        if not is_valid(memory):
            continue
        num_valid += 1
        for copied in (False, True):
            assert type(Value(memory).build(copied)) is tuple
    assert num_valid > 50


@pytest.mark.skipif(palette is None, reason="nothing is encoded without the compiled library")
def test_planes_are_not_valid_where_nothing_decodes_them(monkeypatch):
    memory = joined(*parts_of((FEW,)))
    assert is_valid(memory)
    monkeypatch.setattr(sys.modules[is_valid.__module__], "palette", None)
    assert not is_valid(memory)
