"""Implements the loops of cpu.py in Triton: a program per block, memory read and written once.

The bytes are the same to the bit. Intermediate results stay in registers. A table is layout.py's
blocks on the device.
"""

import contextlib
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import triton
import triton.language as tl
from torch import Tensor

from stoker.gradients.blocks.any_device import given, narrow, widen
from stoker.gradients.blocks.layout import NUM_COLUMNS
from stoker.gradients.codes import BLOCK_LEN

__all__ = ["dequantise", "given", "narrow", "quantise", "reduce", "table_of", "widen"]

HALF = tl.constexpr(BLOCK_LEN // 2)
COLUMNS = tl.constexpr(NUM_COLUMNS)
_ROUND = tl.constexpr(1.5 * 2**23)
_MAX = tl.constexpr(float(np.finfo(np.float32).max))
_SHARE_INT4 = tl.constexpr(float(np.float32(1 / 7)))
_SHARE_INT8 = tl.constexpr(float(np.float32(1 / 127)))
_SHIFT = tl.constexpr(float(np.float32(2**-16 * (1 - 2**-14))))
# A product and a sum are rounded each, as on CPUs.
_OPTIONS = {"num_warps": 4, "enable_fp_fusion": False}


def table_of(blocks: npt.NDArray[np.int64], device: torch.device) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(blocks)).to(device)


def quantise(values: Tensor, table: Tensor, message: Tensor, residuals: Tensor, seed: Any) -> None:
    if len(table):
        low, high = _words(seed)
        _launch(_quantise, table, values, table, message, residuals, low, high, bool(seed))


def reduce(
    received: Tensor, num_ranks: int, table: Tensor, divisor: Any, message: Tensor, seed: Any
) -> None:
    if len(table):
        low, high = _words(seed)
        nbytes = len(received) // num_ranks
        arguments = (received, num_ranks, nbytes, table, float(divisor), message, low, high)
        _launch(_reduce, table, *arguments, bool(seed))


def dequantise(message: Tensor, table: Tensor, values: Tensor) -> None:
    if len(table):
        _launch(_dequantise, table, message, table, values)


def _launch(loop: Any, table: Tensor, *arguments: Any) -> None:
    """Run a program for each block, on the tensors' device: Triton takes the current one."""
    with torch.cuda.device(table.device) if table.is_cuda else contextlib.nullcontext():
        loop[(len(table),)](*arguments, **_OPTIONS)


def _words(seed: Any) -> tuple[int, int]:
    """Return a seed's lower and upper 32 bits: either fits Triton's signed 64 bits."""
    return int(seed) & 0xFFFFFFFF, int(seed) >> 32


# A block's elements are held in two halves, as 4 bits are packed: i and half + i share a byte.


@triton.jit
def _places(row):
    """Return the positions of both halves' elements in the block, and which of them exist."""
    length = tl.load(row + 1)
    half = (length + 1) // 2
    i = tl.arange(0, HALF)
    return i, half + i, i < half, i < length - half


@triton.jit
def _largest(a, b):
    """Return the bits of the largest magnitude: those of NaN are above those of infinity."""
    a_bits = a.to(tl.int32, bitcast=True) & 0x7FFFFFFF
    b_bits = b.to(tl.int32, bitcast=True) & 0x7FFFFFFF
    return tl.maximum(tl.max(a_bits, 0), tl.max(b_bits, 0))


@triton.jit
def _whole(x, inverse, most, number, low, high, is_random: tl.constexpr):
    """Return whole numbers, scaled and rounded as by cpu.py's `_scaled`."""
    if is_random:
        h = number.to(tl.uint32) ^ low.to(tl.uint32)
        h = (h ^ (h >> 16)) * 0x7FEB352D
        h = h + high.to(tl.uint32)
        h = (h ^ (h >> 15)) * 0x846CA68B
        h = h ^ (h >> 16)
        shift = (h >> 16).to(tl.float32) * _SHIFT + (2.0**-16 - 0.5)
        x = tl.minimum(tl.maximum(x * inverse + shift, -most), most)
    else:
        x = x * inverse
    bits = (x + _ROUND).to(tl.int32, bitcast=True)
    return (bits << 24) >> 24  # 8 bits with their sign


@triton.jit
def _halves(x):
    bits = x.to(tl.int32, bitcast=True)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    return tl.where((bits & 0x7FFFFFFF) > 0x7F800000, 0x7FC0, rounded).to(tl.int16)


@triton.jit
def _floats(halves):
    return (halves.to(tl.int32) << 16).to(tl.float32, bitcast=True)


@triton.jit
def _write(a, b, row, message, low, high, is_random: tl.constexpr):
    """Write the block's bytes. Returns the values that they stand for, as both halves."""
    i, j, is_a, is_b = _places(row)
    start, bits = tl.load(row), tl.load(row + 2)
    place = message + tl.load(row + 3)
    if bits == 32:
        words = place.to(tl.pointer_type(tl.float32))
        tl.store(words + i, a, mask=is_a)
        tl.store(words + j, b, mask=is_b)
    elif bits == 16:
        halves = place.to(tl.pointer_type(tl.int16))
        a_half, b_half = _halves(a), _halves(b)
        tl.store(halves + i, a_half, mask=is_a)
        tl.store(halves + j, b_half, mask=is_b)
        a, b = _floats(a_half), _floats(b_half)
    else:
        most_bits = _largest(a, b)
        largest = most_bits.to(tl.float32, bitcast=True)
        largest = tl.where(most_bits < 0x7F800000, largest, float("nan"))
        tl.store(place.to(tl.pointer_type(tl.float32)), largest)
        most = tl.where(bits == 8, 127.0, 7.0)
        share = tl.where(bits == 8, _SHARE_INT8, _SHARE_INT4)
        # 1e-36: below it the quotient is infinite
        inverse = tl.where(largest > 0, tl.minimum(tl.div_rn(most, largest), _MAX), 0.0)
        a_code = _whole(a, inverse, most, start + i, low, high, is_random)
        b_code = _whole(b, inverse, most, start + j, low, high, is_random)
        if bits == 8:
            tl.store(place + 4 + i, a_code.to(tl.uint8), mask=is_a)
            tl.store(place + 4 + j, b_code.to(tl.uint8), mask=is_b)
        else:
            upper = tl.where(is_b, b_code << 4, 0)
            tl.store(place + 4 + i, ((a_code & 15) | upper).to(tl.uint8), mask=is_a)
        a = largest * (a_code.to(tl.float32) * share)
        b = largest * (b_code.to(tl.float32) * share)
    return a, b


@triton.jit
def _read(message, row):
    i, j, is_a, is_b = _places(row)
    bits = tl.load(row + 2)
    place = message + tl.load(row + 3)
    a = tl.zeros([HALF], tl.float32)
    b = tl.zeros([HALF], tl.float32)
    if bits == 32:
        words = place.to(tl.pointer_type(tl.float32))
        a = tl.load(words + i, mask=is_a, other=0.0)
        b = tl.load(words + j, mask=is_b, other=0.0)
    elif bits == 16:
        halves = place.to(tl.pointer_type(tl.int16))
        a = _floats(tl.load(halves + i, mask=is_a, other=0))
        b = _floats(tl.load(halves + j, mask=is_b, other=0))
    else:
        largest = tl.load(place.to(tl.pointer_type(tl.float32)))
        if bits == 8:
            a_code = tl.load(place + 4 + i, mask=is_a, other=0).to(tl.int8, bitcast=True)
            b_code = tl.load(place + 4 + j, mask=is_b, other=0).to(tl.int8, bitcast=True)
            a = largest * (a_code.to(tl.float32) * _SHARE_INT8)
            b = largest * (b_code.to(tl.float32) * _SHARE_INT8)
        else:
            both = tl.load(place + 4 + i, mask=is_a, other=0).to(tl.int32)
            a = largest * (((both << 28) >> 28).to(tl.float32) * _SHARE_INT4)
            b = largest * (((both << 24) >> 28).to(tl.float32) * _SHARE_INT4)
    return a, b


@triton.jit(do_not_specialize=["low", "high"])
def _quantise(
    values,
    table,
    message,
    residuals,
    low: tl.int64,
    high: tl.int64,
    is_random: tl.constexpr,
):
    row = table + tl.program_id(0) * COLUMNS
    i, j, is_a, is_b = _places(row)
    block, memory = values + tl.load(row), tl.load(row + 4)
    a = tl.load(block + i, mask=is_a, other=0.0)
    b = tl.load(block + j, mask=is_b, other=0.0)
    if memory < 0:
        _write(a, b, row, message, low, high, is_random)
    else:
        kept = residuals + memory
        a += tl.load(kept + i, mask=is_a, other=0.0)
        b += tl.load(kept + j, mask=is_b, other=0.0)
        a_told, b_told = _write(a, b, row, message, low, high, is_random)
        if _largest(a, b) < 0x7F800000:
            tl.store(kept + i, a - a_told, mask=is_a)
            tl.store(kept + j, b - b_told, mask=is_b)


@triton.jit(do_not_specialize=["num_ranks", "nbytes", "divisor", "low", "high"])
def _reduce(
    received,
    num_ranks,
    nbytes: tl.int64,
    table,
    divisor,
    message,
    low: tl.int64,
    high: tl.int64,
    is_random: tl.constexpr,
):
    row = table + tl.program_id(0) * COLUMNS
    a = tl.zeros([HALF], tl.float32)
    b = tl.zeros([HALF], tl.float32)
    for _ in range(num_ranks):
        a_read, b_read = _read(received, row)
        a += a_read
        b += b_read
        received += nbytes
    a = tl.div_rn(a, tl.zeros_like(a) + divisor)
    b = tl.div_rn(b, tl.zeros_like(b) + divisor)
    _write(a, b, row, message, low, high, is_random)


@triton.jit
def _dequantise(message, table, values):
    row = table + tl.program_id(0) * COLUMNS
    i, j, is_a, is_b = _places(row)
    a, b = _read(message, row)
    block = values + tl.load(row)
    tl.store(block + i, a, mask=is_a)
    tl.store(block + j, b, mask=is_b)
