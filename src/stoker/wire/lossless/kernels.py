"""Compiled loops of `lossless`: they turn values into indices and back, audio to 16 bits and back.

Promise: an encoder that returns True has compared every element with what its decoder will write,
bit for bit. No loop leaves the arrays it is given, whatever is in them.
Ban: no torch, no thread; floats are handled as their bits, so a NaN is a value like any other.

numba compiles when this module is first imported (compiled.py).
"""

import numpy as np
import numpy.typing as npt

from stoker.compiled import kernel

Bits = npt.NDArray[np.uint16] | npt.NDArray[np.uint32] | npt.NDArray[np.uint64]
Bytes = npt.NDArray[np.uint8]
Sizes = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]
Samples = npt.NDArray[np.int16]

NUM_VALUES = 256  # a table's entries: what one byte can name
NUM_SLOTS = 4096  # of a hash; 2048 take 100x the tries of `_rehash`, 16384 leave the L1 cache
_SLOT_SHIFT = np.uint64(64 - 12)  # the upper 12 bits of a product are the slot
# Of 256 random values in 4096 slots, 1 multiplier in 3,000 lets none meet; real tables take < 60.
_MAX_TRIES = 1 << 17
# Elements between two looks at whether all were found. Fits the L1 cache with the hash.
_RUN = 4096


def _each_width(signature: str) -> list[str]:
    return [signature.format(T=width) for width in ("u2", "u4", "u8")]


@kernel()
def _slot(bits: np.uint64, multiplier: np.uint64) -> np.uint64:
    return (np.uint64(bits) * multiplier) >> _SLOT_SHIFT


@kernel()
def _rehash(table: Bits, size: int, slots: Bytes, multiplier: np.uint64) -> np.uint64:
    """Find a multiplier that sends each value to a slot of its own. Returns it, or 0."""
    taken_in = np.zeros(NUM_SLOTS, np.int64)  # the last try that put a value there
    for attempt in range(1, _MAX_TRIES):
        num_placed = 0
        while num_placed < size:
            slot = _slot(table[num_placed], multiplier)
            if taken_in[slot] == attempt:
                break
            taken_in[slot] = attempt
            num_placed += 1
        if num_placed == size:
            slots[:] = 0  # a slot that nobody has leads to a value that will not compare equal
            for i in range(size):
                slots[_slot(table[i], multiplier)] = i
            return multiplier
        # Knuth's MMIX generator; odd, so that no bits are lost
        multiplier = (
            multiplier * np.uint64(6364136223846793005) + np.uint64(1442695040888963407)
        ) | np.uint64(1)
    return np.uint64(0)


@kernel()
def _learn(values: Bits, table: Bits, size: int) -> int:
    """Append the values that the table lacks. Returns its new size, -1 if it is too small."""
    for i in range(values.size):
        bits = values[i]
        k = 0
        while k < size and table[k] != bits:
            k += 1
        if k == size:
            if size == NUM_VALUES:
                return -1
            table[size] = bits
            size += 1
    return size


@kernel()
def _look_up(values: Bits, out: Bytes, table: Bits, slots: Bytes, multiplier: np.uint64) -> bool:
    """Write each value's index. Returns whether every index leads back to the very same bits."""
    wrong = values.dtype.type(0)
    for i in range(values.size):
        bits = values[i]
        index = slots[_slot(bits, multiplier)]
        wrong |= table[index] ^ bits
        out[i] = index
    return bool(wrong == 0)


@kernel()
def _encode_run(
    values: Bits, out: Bytes, c: int, tables: Bits, sizes: Sizes, slots: Bytes, multipliers: Bits
) -> bool:
    """Encode one channel's next elements; values that are new to its table are learned first."""
    if sizes[c] and _look_up(values, out, tables[c], slots[c], multipliers[c]):
        return True
    size = _learn(values, tables[c], sizes[c])
    if size < 0:
        return False
    sizes[c] = size
    multipliers[c] = _rehash(tables[c], size, slots[c], multipliers[c])
    if multipliers[c] == 0:
        return False
    return _look_up(values, out, tables[c], slots[c], multipliers[c])


@kernel(
    *_each_width(
        "b1(Array({T}, 1, 'C', readonly=True), u1[::1], i8, i8, {T}[:,::1], i8[::1], u1[:,::1], u8[::1])"
    )
)
def encode_tables(
    values: Bits, out: Bytes, num_channels: int, inner: int,
    tables: Bits, sizes: Sizes, slots: Bytes, multipliers: Bits,
) -> bool:  # fmt: skip
    """Write the index of every value in its channel's table. Returns False if a table is too small.

    values: memory as (outer, num_channels, inner). tables, sizes, slots, multipliers: what is known
    of each channel, one row each; grows here. An entry once used never changes.
    """
    if inner == 1:
        for first in range(0, values.size, _RUN * num_channels):
            end = min(values.size, first + _RUN * num_channels)
            for c in range(num_channels):
                run, run_out = values[first + c : end : num_channels], out[first + c : end : num_channels]  # fmt: skip
                if not _encode_run(run, run_out, c, tables, sizes, slots, multipliers):
                    return False
        return True
    for plane in range(values.size // inner):
        for first in range(plane * inner, (plane + 1) * inner, _RUN):
            end = min((plane + 1) * inner, first + _RUN)
            run, run_out = values[first:end], out[first:end]
            if not _encode_run(run, run_out, plane % num_channels, tables, sizes, slots, multipliers):  # fmt: skip
                return False
    return True


@kernel()
def _decode_run(indices: Bytes, out: Bits, table: Bits) -> None:
    for i in range(indices.size):
        out[i] = table[indices[i]]


@kernel(*_each_width("void(Array(u1, 1, 'C', readonly=True), {T}[::1], i8, i8, {T}[:,::1])"))
def decode_tables(indices: Bytes, out: Bits, num_channels: int, inner: int, tables: Bits) -> None:
    """Write each index's value. The tables have NUM_VALUES entries, so that any byte is valid."""
    if inner == 1:
        for first in range(0, indices.size, _RUN * num_channels):
            end = min(indices.size, first + _RUN * num_channels)
            for c in range(num_channels):
                _decode_run(indices[first + c : end : num_channels], out[first + c : end : num_channels], tables[c])  # fmt: skip
        return
    for plane in range(indices.size // inner):
        part = slice(plane * inner, (plane + 1) * inner)
        _decode_run(indices[part], out[part], tables[plane % num_channels])


@kernel("b1(Array(f4, 1, 'C', readonly=True), Array(u4, 1, 'C', readonly=True), i2[::1])")
def encode_pcm(values: Floats, bits: Bits, out: Samples) -> bool:
    """Write k for each value that is k/32768 to the bit. Returns False if some value is not.

    bits: the same memory as values.
    """
    for first in range(0, values.size, _RUN):
        end = min(values.size, first + _RUN)
        wrong = np.uint32(0)
        run, run_bits, run_out = values[first:end], bits[first:end], out[first:end]
        for i in range(run.size):
            scaled = run[i] * np.float32(32768)
            # Also for NaN: a float that no integer can hold would become anything.
            fits = scaled >= np.float32(-32768) and scaled <= np.float32(32767)
            k = np.int16(np.int32(scaled if fits else np.float32(0)))
            back = np.float32(k) * np.float32(1 / 32768)
            wrong |= np.float32(back).view(np.uint32) ^ run_bits[i]
            run_out[i] = k
        if wrong:
            return False
    return True


@kernel("void(Array(i2, 1, 'C', readonly=True), f4[::1])")
def decode_pcm(samples: Samples, out: Floats) -> None:
    for i in range(samples.size):
        out[i] = np.float32(samples[i]) * np.float32(1 / 32768)
