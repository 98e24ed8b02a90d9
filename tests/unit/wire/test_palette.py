"""Elements of few values come back bit by bit from a byte each; others are refused, and soon."""

import ctypes
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from stoker.wire.palette import (
    LIBRARY,
    MIN_NBYTES,
    MIN_PLANE,
    NUM_VALUES,
    Planes,
    load,
    palette,
    planes_of,
)

needs_library = pytest.mark.skipif(
    palette is None, reason=f"{LIBRARY.name} was not built here (no C compiler?)"
)
NEVER = 0xA5  # what is around the destination stays this
ODD_BITS = {  # -0.0, an infinity, NaNs with payloads, denormals
    2: [0x8000, 0x7C00, 0x7E01, 0xFFFF, 1],
    4: [0x80000000, 0x7F800000, 0x7FC00001, 0xFFFFFFFF, 0x7F800001, 1],
    8: [1 << 63, 0x7FF << 52, 0x7FF8000000000001, (1 << 64) - 1, 0x7FF0000000000001, 1],
}


def few(num: int, item_nbytes: int, num_values: int, seed: int) -> np.ndarray:
    """Bits of `num` elements that take exactly `num_values` values, zero among them or not."""
    rng = np.random.default_rng(seed)
    kind = f"u{item_nbytes}"
    some = rng.integers(0, 1 << (8 * item_nbytes - 1), 4 * NUM_VALUES, dtype=np.uint64).astype(kind)
    values = np.unique(np.concatenate([np.array(ODD_BITS[item_nbytes], kind), some]))
    values = rng.permutation(values)[:num_values]
    made = values[rng.integers(0, len(values), num)]
    made[rng.permutation(num)[:num_values]] = values
    return made


def address_of(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]


def decoded(coded: bytearray, planes: Planes, offset: int, streams: bool) -> np.ndarray:
    """What comes back, in memory at `offset` elements behind a page; all around it must stay."""
    assert palette is not None
    before = 64 + offset * planes.item_nbytes
    memory = np.full(before + planes.nbytes + 64, NEVER, np.uint8)
    source = ctypes.addressof(ctypes.c_char.from_buffer(coded))
    palette.decode(address_of(memory) + before, source, planes, streams)
    assert (memory[:before] == NEVER).all()
    assert (memory[before + planes.nbytes :] == NEVER).all()
    return memory[before:][: planes.nbytes]


@needs_library
@settings(max_examples=300, deadline=None)
@given(
    num_planes=st.integers(1, 4),
    length=st.integers(1, 3000),
    item_nbytes=st.sampled_from([2, 4, 8]),
    num_values=st.integers(1, NUM_VALUES),
    offset=st.integers(0, 9),
    streams=st.booleans(),
    seed=st.integers(0, 1000),
)
@example(1, 1, 4, 1, 1, True, 0)
@example(3, 256, 8, 256, 1, True, 0)
@example(2, 3, 2, 3, 7, True, 0)
def test_elements_come_back_and_nothing_else_changes(
    num_planes, length, item_nbytes, num_values, offset, streams, seed
):
    planes = Planes(num_planes, length, item_nbytes)
    num_values = min(num_values, length)
    bits = np.concatenate(
        [few(length, item_nbytes, num_values, seed + k) for k in range(num_planes)]
    )
    coded = palette.encode(address_of(bits), planes)
    assert len(coded) == planes.coded_nbytes
    assert palette.encode(address_of(bits.copy()), planes) == coded
    assert decoded(coded, planes, offset, streams).tobytes() == bits.tobytes()


@needs_library
@pytest.mark.parametrize("item_nbytes", [2, 4, 8])
@pytest.mark.parametrize("plane", [0, 1, 2])
def test_one_value_too_many_is_refused_wherever_it_lies(item_nbytes, plane):
    length = 5000
    planes = Planes(3, length, item_nbytes)
    bits = np.concatenate([few(length, item_nbytes, NUM_VALUES, k) for k in range(3)])
    assert palette.encode(address_of(bits), planes) is not None
    bits[plane * length :][:length] = few(length, item_nbytes, NUM_VALUES + 1, 7)
    assert palette.encode(address_of(bits), planes) is None


@needs_library
def test_half_an_element_off_is_no_place_for_a_streaming_store():
    planes = Planes(1, 100, 4)
    bits = few(100, 4, 50, 3)
    coded = palette.encode(address_of(bits), planes)
    memory = np.zeros(1 + planes.nbytes, np.uint8)
    palette.decode(
        address_of(memory) + 1, ctypes.addressof(ctypes.c_char.from_buffer(coded)), planes, True
    )
    assert memory[1:].tobytes() == bits.tobytes()


@needs_library
@given(st.binary(min_size=0, max_size=200))
@settings(deadline=None)
def test_noise_is_decoded_to_something(noise):
    """A byte names one of 256 values, whatever it is: nothing is read beyond the table."""
    planes = Planes(2, 33, 4)
    coded = bytearray(noise.ljust(planes.coded_nbytes, b"\xff"))
    decoded(coded, planes, 0, True)


def check_of(data: bytes, at: int = 0) -> int:
    assert palette is not None
    memory = bytearray(bytes(at) + data + b"!")
    return palette.check(ctypes.addressof(ctypes.c_char.from_buffer(memory)) + at, len(data))


@needs_library
@settings(max_examples=300, deadline=None)
@given(
    data=st.binary(min_size=1, max_size=300),
    at=st.integers(0, 40),
    flips=st.sets(st.integers(0, 300 * 8), min_size=1, max_size=4),
)
@example(bytes(128), 0, {63, 64 * 8 + 63})  # the highest bits of two words that are taken in turn
def test_checks_are_the_same_for_the_same_bytes_and_others_for_others(data, at, flips):
    damaged = bytearray(data)
    for bit in flips:
        damaged[bit // 8 % len(data)] ^= 1 << bit % 8
    assert check_of(data, at) == check_of(data)
    assert (check_of(bytes(damaged)) == check_of(data)) == (damaged == data)


@needs_library
def test_a_check_tells_lengths_and_the_order_of_words():
    words = [bytes([k]) * 8 for k in range(40)]
    orders = [words, words[::-1], [*words[4:8], *words[:4], *words[8:]], words[1:] + words[:1]]
    datas = [b"".join(order) for order in orders] + [bytes(n) for n in range(70)]
    assert len({check_of(data) & 0xFFFFFFFF for data in datas}) == len(datas)


@pytest.mark.parametrize(
    ("shape", "item_nbytes", "nums"),
    [
        ((3, 224, 224), 4, [1, 3]),
        ((32, 3, 224, 224), 4, [1, 32, 96]),
        ((1, 3, 224, 224), 2, [1, 3]),
        ((224, 224, 3), 4, [1]),
        ((220_500,), 8, [1]),
        ((3, 32, 32), 4, []),  # too small
        ((3, 224, 224), 1, []),
        ((0, 5), 4, []),
        ((), 8, []),
    ],
)
def test_planes_are_the_outer_dimensions(shape, item_nbytes, nums):
    found = list(planes_of(shape, item_nbytes))
    assert [planes.num for planes in found] == nums
    for planes in found:
        assert planes.nbytes == np.prod(shape) * item_nbytes >= MIN_NBYTES
        assert planes.length >= MIN_PLANE
        assert planes.coded_nbytes <= 0.75 * planes.nbytes


def test_without_the_library_there_are_no_functions(tmp_path):
    assert load(tmp_path / "libpalette.so") is None


def test_a_file_that_is_no_library_of_ours_gives_no_functions(tmp_path):
    broken = tmp_path / "libpalette.so"
    broken.write_bytes(b"\x7fELF and then nothing")
    assert load(broken) is None
    assert load(Path("libc.so.6")) is None
