"""A JPEG file waits only if no decoding of it can fail: what Pillow refuses is never called sound."""

import io

import numpy as np
import pytest
from PIL import Image

from stoker.images.native import native

pytestmark = pytest.mark.skipif(native is None, reason="images/native was not built here")

FRAME, TABLES, SCAN = b"\xff\xc0", b"\xff\xc4", b"\xff\xda"


def saved(**options):
    pixels = np.random.default_rng(0).integers(0, 256, (40, 56, 3), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "JPEG", **options)
    return file.getvalue()


def at(file, marker, offset, *values):
    """The file with other bytes behind a marker."""
    changed = bytearray(file)
    begin = file.index(marker) + offset
    changed[begin : begin + len(values)] = bytes(values)
    return bytes(changed)


def counts_of(file):
    begin = file.index(TABLES) + 5
    return list(file[begin : begin + 16])


def with_counts(file, *first):
    """Codes of these lengths in the first Huffman table, and the rest of its symbols at 16 bits."""
    num = sum(counts_of(file)) - sum(first)
    return at(file, TABLES, 5, *first, *[0] * (15 - len(first)), num)


UNSOUND = {
    "codes that are too many": lambda f: with_counts(f, 3),
    "a code of ones": lambda f: with_counts(f, 2),
    "a symbol that is no number of bits": lambda f: at(f, TABLES, 21, 16),
    "a sampling of nothing": lambda f: at(f, FRAME, 11, 0x01),
    "a sampling of five": lambda f: at(f, FRAME, 11, 0x51),
    "eleven blocks": lambda f: at(f, FRAME, 11, 0x33),
    "samplings that do not divide": lambda f: at(at(f, FRAME, 11, 0x31), FRAME, 14, 0x21),
    "a component that is not known": lambda f: at(f, SCAN, 9, 4),
    "components in another order": lambda f: at(f, SCAN, 5, 2, 0x00, 1),
    "a component twice": lambda f: at(f, SCAN, 7, 1),
    "a table that is not there": lambda f: at(f, SCAN, 6, 0x22),
    "a table of no number": lambda f: at(f, SCAN, 6, 0x44),
    "too wide": lambda f: at(f, FRAME, 7, 0xFF, 0xFF),
    "of no height": lambda f: at(f, FRAME, 5, 0, 0),
    "of twelve bits": lambda f: at(f, FRAME, 4, 12),
    "cut": lambda f: f[: len(f) // 2],
    "without its end": lambda f: f[:-2],
    "a marker among its data": lambda f: f[:-40] + b"\xff\xc4" + f[-38:],
}


@pytest.mark.parametrize("change", UNSOUND.values(), ids=UNSOUND)
def test_what_may_fail_is_not_sound(change):
    file = saved(quality=90, subsampling=0)
    assert native.shape_of(file)[:4] == (56, 40, 3, len(file))
    assert native.shape_of(change(file)) is None


@pytest.mark.parametrize(
    "options",
    [
        {"subsampling": 0},
        {"subsampling": 1},
        {"subsampling": 2},
        {"optimize": True},
        {"restart_marker_blocks": 3},
        {"exif": b"Exif\0\0" + b"MM\0*\0\0\0\x08" + bytes(6)},
        {"comment": b"of no meaning"},
    ],
)
def test_ordinary_files_are_sound(options):
    file = saved(**options)
    assert native.shape_of(file)[:4] == (56, 40, 3, len(file))
    assert native.shape_of(file + b"behind")[:4] == (56, 40, 3, len(file))


def test_progressive_files_are_not():
    assert native.shape_of(saved(progressive=True)) is None


def test_no_flipped_bit_of_a_header_that_pillow_refuses_is_sound():
    """Every bit before the compressed data, one at a time."""
    file = saved(quality=50, subsampling=2)
    for place in range(2, file.index(SCAN) + 14):
        for bit in range(8):
            changed = at(file, b"\xff\xd8", place, file[place] ^ 1 << bit)
            if native.shape_of(changed) is not None:
                Image.open(io.BytesIO(changed)).load()


def test_no_beginning_of_a_file_is_read_beyond_its_end():
    file = saved(restart_marker_blocks=2)
    assert [n for n in range(len(file)) if native.shape_of(file[:n])] == []
