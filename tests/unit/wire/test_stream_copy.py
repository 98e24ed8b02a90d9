"""The compiled copy puts the bytes that memcpy would, and only those; and it may be missing."""

import ctypes
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from stoker.wire.stream_copy import LIBRARY, load, stream_copy

needs_library = pytest.mark.skipif(
    stream_copy is None, reason=f"{LIBRARY.name} was not built here (no C compiler?)"
)
LINE_NBYTES = 64
NEVER = 0xA5  # a byte that no source holds: what is around the destination stays this


def aligned(nbytes: int) -> np.ndarray:
    """Bytes whose first lies at a multiple of LINE_NBYTES, all NEVER."""
    memory = np.full(nbytes + LINE_NBYTES, NEVER, np.uint8)
    return memory[-memory.ctypes.data % LINE_NBYTES :][:nbytes]


def copied(nbytes: int, num: int, dst_offset: int, src_offset: int) -> None:
    """Copy `num` pieces and compare the destination and all around it."""
    rng = np.random.default_rng(nbytes)
    sources = aligned(num * (nbytes + src_offset) + LINE_NBYTES)
    sources[:] = rng.integers(0, NEVER, len(sources))
    starts = [src_offset + k * (nbytes + src_offset) for k in range(num)]
    destination = aligned(dst_offset + num * nbytes + 2 * LINE_NBYTES)
    expected = destination.copy()
    for k, start in enumerate(starts):
        expected[dst_offset + k * nbytes :][:nbytes] = sources[start : start + nbytes]
    assert stream_copy is not None
    stream_copy(
        destination.ctypes.data + dst_offset, [sources.ctypes.data + s for s in starts], nbytes
    )
    assert np.array_equal(destination, expected)


@needs_library
@settings(max_examples=1000, deadline=None)
@given(
    nbytes=st.integers(0, 5000),
    num=st.integers(0, 4),
    dst_offset=st.integers(0, 63),
    src_offset=st.integers(0, 63),
)
@example(nbytes=0, num=1, dst_offset=0, src_offset=0)
@example(nbytes=1, num=4, dst_offset=63, src_offset=1)
@example(nbytes=64, num=2, dst_offset=0, src_offset=0)
def test_pieces_of_any_size_at_any_address_arrive_and_nothing_else_changes(
    nbytes, num, dst_offset, src_offset
):
    copied(nbytes, num, dst_offset, src_offset)


@needs_library
def test_every_size_around_a_line_arrives_at_every_offset_of_it():
    for nbytes in range(3 * LINE_NBYTES):
        for dst_offset in range(LINE_NBYTES):
            copied(nbytes, 1, dst_offset, nbytes % LINE_NBYTES)


@needs_library
@pytest.mark.parametrize("nbytes", [1 << 20, (1 << 20) + 1, (9 << 20) - 17])
def test_large_pieces_arrive(nbytes):
    copied(nbytes, 3, dst_offset=8, src_offset=4)


def test_without_the_library_there_is_no_function(tmp_path):
    assert load(tmp_path / "libstream_copy.so") is None


def test_a_file_that_is_no_library_of_ours_gives_no_function(tmp_path):
    broken = tmp_path / "libstream_copy.so"
    broken.write_bytes(b"\x7fELF and then nothing")
    assert load(broken) is None
    assert hasattr(ctypes.CDLL("libc.so.6"), "memcpy"), "a library, but not ours"
    assert load(Path("libc.so.6")) is None
