"""Tells whether bytes describe a value as encoding.py does.

For values from a disk (stores.py): those in shared memory were written by this run's own workers.
Promise: what is valid is built (value.py) without an error, without a look at memory beyond its own,
and in memory of its size.
"""

import math
import re
import sys
from collections.abc import Iterator
from typing import Any

from stoker.memory.store.coding import layout, subclasses
from stoker.memory.store.coding.layout import ALIGN_NBYTES, HEAD, KEYS, MAX_DEPTH, PLAIN
from stoker.memory.store.coding.shown import order_of
from stoker.wire.palette import palette, planes_of

_NUMPY_DTYPE = re.compile(r"[<>|][biufc](\d{1,2})")
_MAX_DIMS = 32  # NumPy's, up to version 1
_MAX_SIDE = 1 << 28  # of an image: the bytes of a row are an int of C's

# What `dumps` writes: bytes of an opcode's argument, or of a count that is followed by so many bytes.
# Nothing names an object a second time: a few bytes would be a large value.
_FIXED = (
    dict.fromkeys(b"N\x88\x89(.)]}taesu\x85\x86\x87\x93R", 0)
    | dict.fromkeys(b"K\x80", 1)
    | {ord("M"): 2, ord("J"): 4}
    | dict.fromkeys(b"G\x95", 8)
)
_COUNTED = (
    dict.fromkeys(b"\x8a\x8cC", 1) | dict.fromkeys(b"\x8bXB", 4) | dict.fromkeys(b"\x8d\x8e", 8)
)


def is_valid(memory: memoryview) -> bool:
    """Whether these are the bytes of a tuple that was encoded."""
    try:
        nbytes, _ = HEAD.unpack_from(memory)
        data = memory[HEAD.size : HEAD.size + nbytes]
        _must(data.nbytes == nbytes and _is_plain_pickle(bytes(data)))
        told = layout.loads(data)
        _must(told[0] == "t" or type(told[1]) is tuple)
        end = HEAD.size + nbytes
        for nbytes in _buffers_of(told, 0):
            end = -(-end // ALIGN_NBYTES) * ALIGN_NBYTES + nbytes
            _must(end <= memory.nbytes)
    except Exception:  # whatever it is, it is none of encoding.py's
        return False
    return True


def _buffers_of(told: Any, depth: int) -> Iterator[int]:
    """Iterate the bytes of a value's buffers, as value.py reads them. Raises anything if the
    description is not valid."""
    _must(type(told) is tuple and depth <= MAX_DEPTH + 1)
    match told:
        case ("v", plain):
            _check_plain(plain, depth)
        case ("p", int(number), str()):
            _must(number in range(len(layout.PATHS)))
        case ("t" | "l", list(items)):
            for item in items:
                yield from _buffers_of(item, depth + 1)
        case ("d", list(items)):
            for key, item in items:
                _must(type(key) in KEYS or subclasses.is_member(key))
                yield from _buffers_of(item, depth + 1)
        case ("s", int(number), tensor, state):
            _must(subclasses.is_loaded(number) and tensor[0] in ("T", "R", "w") and _is_dict(state))
            yield from _buffers_of(tensor, depth)
            yield from _buffers_of(state, depth + 1)
        case ("e", *member):
            _must(subclasses.is_member(tuple(member)))
        case ("n", str(dtype), bytes(number)):
            _must(len(number) == _item_nbytes(dtype))
        case ("T" | "R" as kind, str(dtype), shape, strides, int(nbytes), int(coded)):
            _must(all(stride >= 0 for stride in strides))
            item_nbytes = layout.DTYPES[dtype].itemsize
            yield _elements(shape, strides, item_nbytes, nbytes, coded, kind == "R")
        case ("w", ("T", str(dtype), *_) as whole, shape, strides, int(first)):
            yield from _buffers_of(whole, depth)
            _must(all(0 <= stride < 1 << 60 for stride in strides))
            item_nbytes = layout.DTYPES[dtype].itemsize
            _check_view(shape, [each * item_nbytes for each in strides], first * item_nbytes, whole)
        case ("x", ("a", *_) as whole, shape, steps, int(start)):
            yield from _buffers_of(whole, depth)
            _check_view(shape, steps, start, whole)
        case ("y", ("T", str(dtype), *_) as tensor):
            _must(dtype != "torch.bfloat16")
            yield from _buffers_of(tensor, depth)
        case ("a", str(dtype), shape, steps, int(nbytes), int(coded), bool()):
            item_nbytes = _item_nbytes(dtype)
            for num, step in zip(shape, steps, strict=True):
                _must(type(step) is int and (num < 2 or step % item_nbytes == 0))
            strides = tuple(step // item_nbytes for step in steps)
            yield _elements(shape, strides, item_nbytes, nbytes, coded, False)
        case ("i", str(mode), (int(width), int(height)), info, int(), bool(), int(nbytes)):
            _must(min(width, height) >= 0 and max(width, height) < _MAX_SIDE)
            _must(nbytes == -(-width * layout.IMAGE_BITS[mode] // 8) * height)
            _must("PIL.Image" in sys.modules and type(told[2]) is tuple and _is_dict(info))
            yield from _buffers_of(info, depth + 1)
            yield nbytes
        case _:
            _must(False)


def _elements(
    shape: Any, strides: Any, item_nbytes: int, nbytes: int, coded: int, in_rows: bool
) -> int:
    """Return the bytes of a buffer of elements."""
    _must(type(shape) is tuple and type(strides) is tuple and len(shape) <= _MAX_DIMS)
    _must(all(type(each) is int for each in (*shape, *strides)) and len(shape) == len(strides))
    _must(all(abs(stride * item_nbytes) < 1 << 63 for stride in strides))
    _must(min(shape, default=0) >= 0)
    _must(math.prod(max(num, 1) for num in shape) * item_nbytes < 1 << 63)
    order = order_of(shape, strides)
    _must(order is not None and nbytes == math.prod(shape) * item_nbytes)
    if not coded:
        return nbytes
    _must(palette is not None)
    lying = [shape[k] for k in order] if order and not in_rows else shape
    [coded_nbytes] = [x.coded_nbytes for x in planes_of(lying, item_nbytes) if x.num == coded]
    return coded_nbytes


def _check_view(shape: Any, steps: Any, start: int, whole: Any) -> None:
    """Check that a view lies within what it is a view of. steps, start: bytes."""
    _must(type(shape) is tuple and len(shape) == len(steps) <= _MAX_DIMS)
    _must(all(type(each) is int for each in (*shape, *steps)) and min(shape, default=0) >= 0)
    reaches = [(num - 1) * step for num, step in zip(shape, steps, strict=True)]
    item_nbytes = whole[4] // max(math.prod(whole[2]), 1)
    if 0 not in shape:
        _must(start + sum(min(each, 0) for each in reaches) >= 0)
        _must(start + sum(max(each, 0) for each in reaches) + item_nbytes <= whole[4])


def _must(is_so: bool) -> None:
    if not is_so:
        raise ValueError("no description of a value")


def _check_plain(value: Any, depth: int) -> None:
    if type(value) in PLAIN:
        return
    _must(type(value) in (tuple, list, dict) and depth <= MAX_DEPTH)
    if type(value) is dict:
        _must(all(type(key) in KEYS for key in value))
        value = value.values()
    for item in value:
        _check_plain(item, depth + 1)


def _is_dict(told: Any) -> bool:
    return told[0] == "d" or (told[0] == "v" and type(told[1]) is dict)


def _item_nbytes(dtype: str) -> int:
    _must(_NUMPY_DTYPE.fullmatch(dtype) is not None)
    return int(sys.modules["numpy"].dtype(dtype).itemsize)


def _is_plain_pickle(data: bytes) -> bool:
    at = 0
    while at < len(data):
        code = data[at]
        if code in _COUNTED:
            start = at + 1 + _COUNTED[code]
            at = start + int.from_bytes(data[at + 1 : start], "little")
        elif code in _FIXED:
            at += 1 + _FIXED[code]
        else:
            return False
    return at == len(data)
