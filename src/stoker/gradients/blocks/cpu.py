"""Compiled loops for CPUs that compress gradients into a message's blocks, and read them back.

Each block is worked on in a tile that stays in the L1 cache, so that memory is read once and
written once. No loop leaves the arrays it is given. What is written depends on the arguments alone:
not on the number of threads, the machine, or on what other blocks hold.
Ban: no thread, none of torch's own loops: they would bring a team of threads into ours.

Arrays: values float32; blocks (num_blocks, 5) int64 as in layout.py; messages uint8, whole words.
"""

import functools
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from stoker.compiled import kernel
from stoker.gradients.blocks.layout import (
    BITS,
    LENGTH,
    MEMORY,
    PLACE,
    START,
    Segment,
    layout_of,
)
from stoker.gradients.blocks.loops import NEAREST
from stoker.gradients.codes import BLOCK_LEN, Code

# Added to a float below 2**22, leaves it rounded to nearest even in the lower bits.
_ROUND = np.float32(1.5 * 2**23)
_NAN = np.float32(np.nan)
_MAX = np.float32(np.finfo(np.float32).max)
_ABS, _INF = np.uint32(0x7FFFFFFF), np.uint32(0x7F800000)
_SHARE_INT4, _SHARE_INT8 = np.float32(1 / 7), np.float32(1 / 127)  # times 7, times 127: 1, exactly
_SHIFT = np.float32(2**-16 * (1 - 2**-14))


@kernel()
def _largest(tile: Any, length: int) -> Any:
    """Return the tile's largest magnitude; NaN if not all elements are finite."""
    bits = tile.view(np.uint32)
    most = np.uint32(0)
    for i in range(length):  # as integers: those of NaN are above those of infinity
        most = max(most, bits[i] & _ABS)
    return np.float32(np.uint32(most).view(np.float32)) if most < _INF else _NAN


@kernel()
def _scaled(tile: Any, length: int, num_levels: Any, largest: Any, start: int, seed: Any) -> None:
    """Write whole numbers of -num_levels..num_levels to the lower bits of the tile's floats.

    Stochastic rounding: up with the probability of the fraction, by lowbias32 (C. Wellons, 2018) of
    the element's number and the seed.
    """
    # Below 1e-36 the quotient is infinite; what is so small becomes 0.
    inverse = min(num_levels / largest, _MAX) if largest > 0 else np.float32(0)
    if seed == NEAREST:
        for i in range(length):
            tile[i] = tile[i] * inverse + _ROUND
        return
    low, high = np.uint32(seed), np.uint32(seed >> np.uint64(32))
    for i in range(length):
        h = np.uint32(np.uint32(start + i) ^ low)
        h = np.uint32(np.uint32(h ^ (h >> np.uint32(16))) * np.uint32(0x7FEB352D))
        h = np.uint32(h + high)
        h = np.uint32(np.uint32(h ^ (h >> np.uint32(15))) * np.uint32(0x846CA68B))
        h = np.uint32(h ^ (h >> np.uint32(16)))
        # Within -0.5..0.5 by 2**-16 at least: 0 stays 0, and so does the largest, whose quotient may
        # be a float next to num_levels.
        shift = np.float32(h >> np.uint32(16)) * _SHIFT + np.float32(2**-16 - 0.5)
        moved = tile[i] * inverse + shift
        tile[i] = max(-num_levels, min(num_levels, moved)) + _ROUND


@kernel()
def _write(tile: Any, block: Any, message: Any, seed: Any) -> None:
    """Write the tile as the block's bytes. The tile's content is undefined after that."""
    length, place = block[LENGTH], block[PLACE]
    if block[BITS] == 32:
        message[place : place + 4 * length].view(np.float32)[:] = tile[:length]
        return
    bits = tile.view(np.uint32)
    if block[BITS] == 16:
        halves = message[place : place + 2 * length].view(np.uint16)
        for i in range(length):
            rounded = bits[i] + np.uint32(0x7FFF) + ((bits[i] >> np.uint32(16)) & np.uint32(1))
            is_nan = (bits[i] & _ABS) > _INF
            halves[i] = np.uint16(0x7FC0) if is_nan else np.uint16(rounded >> np.uint32(16))
        return
    largest = _largest(tile, length)
    message[place : place + 4].view(np.float32)[0] = largest
    if block[BITS] == 8:
        _scaled(tile, length, np.float32(127), largest, block[START], seed)
        codes = message[place + 4 : place + 4 + length]
        for i in range(length):
            codes[i] = np.uint8(bits[i])
        return
    _scaled(tile, length, np.float32(7), largest, block[START], seed)
    half = (length + 1) // 2  # a byte holds an element of the first half, and one of the second
    codes = message[place + 4 : place + 4 + half]
    first, second = bits[:half], bits[half:length]
    for i in range(length - half):
        codes[i] = np.uint8((first[i] & np.uint32(15)) | (second[i] << np.uint32(4)))
    if length % 2:
        codes[half - 1] = np.uint8(first[half - 1] & np.uint32(15))


@kernel()
def _read(message: Any, block: Any, tile: Any) -> None:
    """Read the block's bytes into the tile, as floats."""
    length, place = block[LENGTH], block[PLACE]
    if block[BITS] == 32:
        tile[:length] = message[place : place + 4 * length].view(np.float32)
        return
    if block[BITS] == 16:
        halves = message[place : place + 2 * length].view(np.uint16)
        bits = tile.view(np.uint32)
        for i in range(length):
            bits[i] = np.uint32(halves[i]) << np.uint32(16)
        return
    largest = message[place : place + 4].view(np.float32)[0]
    if block[BITS] == 8:
        codes = message[place + 4 : place + 4 + length]
        for i in range(length):
            tile[i] = largest * (np.float32(np.int8(codes[i])) * _SHARE_INT8)
        return
    half = (length + 1) // 2
    codes = message[place + 4 : place + 4 + half]
    first, second = tile[:half], tile[half:length]
    for i in range(half):
        low = np.int32(np.uint32(codes[i]) << np.uint32(28)) >> np.int32(28)
        first[i] = largest * (np.float32(low) * _SHARE_INT4)
    for i in range(length - half):
        high = np.int32(np.uint32(codes[i]) << np.uint32(24)) >> np.int32(28)
        second[i] = largest * (np.float32(high) * _SHARE_INT4)


@kernel("void(f4[::1], i8[:,::1], u1[::1], f4[::1], u8)")
def quantise(values: Any, blocks: Any, message: Any, residuals: Any, seed: Any) -> None:
    """Write one shard's blocks into its message.

    residuals: if a block has one, it is added first, and then set to what the message lacks; it is
    left alone if that would not be finite. seed: NEAREST, or of stochastic rounding.
    """
    tile = np.empty(BLOCK_LEN, np.float32)
    sums = np.empty(BLOCK_LEN, np.float32)
    for b in range(len(blocks)):
        block = blocks[b]
        length = block[LENGTH]
        tile[:length] = values[block[START] : block[START] + length]
        if block[MEMORY] < 0:
            _write(tile, block, message, seed)
            continue
        residual = residuals[block[MEMORY] : block[MEMORY] + length]
        for i in range(length):
            sums[i] = tile[i] + residual[i]
            tile[i] = sums[i]
        _write(tile, block, message, seed)
        if _largest(sums, length) <= _MAX:
            _read(message, block, tile)
            for i in range(length):
                residual[i] = sums[i] - tile[i]


@kernel("void(u1[::1], i8, i8[:,::1], f4, u1[::1], u8)")
def reduce(
    received: Any, num_ranks: int, blocks: Any, divisor: Any, message: Any, seed: Any
) -> None:
    """Add up one shard in rank order, divide, and write its message.

    received: each rank's message of this shard, one after the other.
    """
    tile = np.empty(BLOCK_LEN, np.float32)
    sums = np.empty(BLOCK_LEN, np.float32)
    nbytes = len(received) // num_ranks
    for b in range(len(blocks)):
        block = blocks[b]
        length = block[LENGTH]
        sums[:length] = 0
        for rank in range(num_ranks):
            _read(received[rank * nbytes : (rank + 1) * nbytes], block, tile)
            for i in range(length):
                sums[i] += tile[i]
        for i in range(length):
            sums[i] /= divisor
        _write(sums, block, message, seed)


@kernel("void(u1[::1], i8[:,::1], f4[::1])")
def dequantise(message: Any, blocks: Any, values: Any) -> None:
    """Write the values in one shard's message to where its blocks lie."""
    for b in range(len(blocks)):
        block = blocks[b]
        _read(message, block, values[block[START] : block[START] + block[LENGTH]])


def table_of(blocks: npt.NDArray[np.int64], device: torch.device) -> npt.NDArray[np.int64]:
    return blocks


def given(tensor: torch.Tensor) -> npt.NDArray[Any]:
    array: npt.NDArray[Any] = tensor.numpy()
    return array


def widen(buffer: torch.Tensor, wide: torch.Tensor) -> None:
    if buffer.dtype == torch.float16:
        np.copyto(wide.numpy(), buffer.numpy())
    else:
        dequantise(buffer.view(torch.uint8).numpy(), _halves(len(wide)), wide.numpy())


def narrow(wide: torch.Tensor, buffer: torch.Tensor) -> None:
    if buffer.dtype == torch.float16:
        with np.errstate(over="ignore"):  # infinity, as torch's own
            np.copyto(buffer.numpy(), wide.numpy(), casting="same_kind")
    else:
        nothing = np.empty(0, np.float32)
        out = buffer.view(torch.uint8).numpy()
        quantise(wide.numpy(), _halves(len(wide)), out, nothing, NEAREST)


@functools.cache
def _halves(length: int) -> npt.NDArray[np.int64]:
    """Return the blocks of a 16-bit buffer that is itself taken for a BF16 message."""
    return layout_of([Segment(0, length, Code.BF16)], 1).blocks
