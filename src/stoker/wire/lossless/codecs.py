"""Implements the lossless codecs, each with its decoder.

- Tables: where each channel holds at most 256 values (any ToTensor + Normalize), a byte names the
  value and the table travels along. Tables are learned from the data; the transform is unknown.
- Pcm: float32 audio that is k/32768 travels as int16.
- Packed: integers travel in the narrowest type that holds them, compressed with zstd.

Promise: every element of what is encoded was compared with what `decode` will write; `decode`
raises ValueError for damaged data, and writes nothing outside `out` whatever it is given.
Ban: no torch. numba is imported by `warm`, or by the first float tensor.
"""

import functools
import struct
from collections.abc import Iterator
from enum import IntEnum
from types import ModuleType
from typing import NamedTuple, Protocol

import numpy as np
import zstandard

from stoker.wire.lossless.memory import Array, Dense, Scratch

MAX_CHANNELS = 64  # their hashes fill 256 KB, half of a small L2 cache
MIN_INNER = 64  # elements in a row of one channel, below which looking for its table is the work
# Above 1, on masks, token ids and photographs: no smaller and slower. Below: larger, as slow.
ZSTD_LEVEL = 1
MAX_WINDOW_NBYTES = 8 << 20  # level 1 uses 512 KB: more is not from our encoder


class Codec(IntEnum):
    TABLES = 1
    PCM = 2
    PACKED = 3


class _Head(NamedTuple):
    dtype: bytes  # of the tensor; for TABLES of its bits
    sent_as: bytes
    num_channels: int
    inner: int
    raw_nbytes: int


_HEAD = struct.Struct("<2s2sIQQ")
_INTEGERS = {f"{kind}{n}".encode(): np.dtype(f"{kind}{n}") for kind in "iu" for n in (1, 2, 4, 8)}


class Coded(NamedTuple):
    """An encoded tensor, ready to be sent. The parts do not change while something holds them."""

    codec: Codec
    head: bytes
    parts: list[bytes | memoryview]

    @property
    def nbytes(self) -> int:
        return len(self.head) + sum(len(part) for part in self.parts)


@functools.cache
def _kernels() -> ModuleType:
    from stoker.wire.lossless import kernels  # numba and LLVM: 130 MB, not for all

    return kernels


def warm() -> None:
    """Load the compiled loops, or compile them if they never were: 0.6 s, or 8 s once a machine."""
    _kernels()


# ---- there


class Coder(Protocol):
    def __call__(self, memory: Dense, scratch: Scratch) -> Coded | None:
        """Return the tensor as this codec encodes it; None if it cannot."""


class _Tables:
    """Remembers the values of each channel along `axis`; None: of all elements together."""

    def __init__(self, axis: int | None, num_channels: int, dtype: np.dtype[np.generic]) -> None:
        kernels, self._axis, self._num_channels = _kernels(), axis, num_channels
        self._bits = np.dtype(f"u{dtype.itemsize}")
        self._values = np.zeros((num_channels, kernels.NUM_VALUES), self._bits)
        self._sizes = np.zeros(num_channels, np.int64)
        self._slots = np.zeros((num_channels, kernels.NUM_SLOTS), np.uint8)
        self._multipliers = np.ones(num_channels, np.uint64)

    def __call__(self, memory: Dense, scratch: Scratch) -> Coded | None:
        num_channels, inner = memory.around(self._axis)
        if num_channels != self._num_channels:
            return None
        bits, indices = memory.flat.view(self._bits), scratch.take(memory.flat.size)
        known = self._values, self._sizes, self._slots, self._multipliers
        if not _kernels().encode_tables(bits, indices, num_channels, inner, *known):
            return None
        code = self._bits.str[1:].encode()
        head = _HEAD.pack(code, b"u1", num_channels, inner, memory.flat.nbytes)
        return Coded(Codec.TABLES, head, [self._values.tobytes(), indices.data])


def _pcm(memory: Dense, scratch: Scratch) -> Coded | None:
    samples = scratch.take(memory.flat.size * 2)
    bits = memory.flat.view(np.uint32)
    if not _kernels().encode_pcm(memory.flat, bits, samples.view(np.int16)):
        return None
    head = _HEAD.pack(b"f4", b"i2", 1, bits.size, bits.nbytes)
    return Coded(Codec.PCM, head, [samples.data])


def _packed(memory: Dense, scratch: Scratch) -> Coded | None:
    flat = memory.flat.view(np.uint8) if memory.flat.dtype.kind == "b" else memory.flat
    narrow = np.promote_types(np.min_scalar_type(flat.min()), np.min_scalar_type(flat.max()))
    sent = flat.astype(narrow) if narrow.itemsize < flat.itemsize else flat
    codes = flat.dtype.str[1:].encode(), sent.dtype.str[1:].encode()
    head = _HEAD.pack(*codes, 1, flat.size, flat.nbytes)
    packed = zstandard.ZstdCompressor(level=ZSTD_LEVEL).compress(sent.data)
    return Coded(Codec.PACKED, head, [packed])


# Where channels may be: all alike, CHW and NCHW, HWC, CTHW and NCTHW. A wrong guess is seen
# within some hundred elements.
_AXES = (None, -3, -1, -4)


def coders(memory: Dense) -> Iterator[Coder]:
    """Iterate the codecs that may suit a tensor, in the order in which to try them."""
    dtype = memory.flat.dtype
    if dtype.kind != "f":
        yield _packed
        return
    if dtype.itemsize not in (2, 4, 8):
        return
    for axis in _AXES:
        if axis is not None and -axis > len(memory.shape):
            continue
        num_channels, inner = memory.around(axis)
        if axis is not None and num_channels == 1:
            continue  # as without an axis
        if num_channels <= MAX_CHANNELS and (inner == 1 or inner >= MIN_INNER):
            yield _Tables(axis, num_channels, dtype)
    if dtype.itemsize == 4:
        yield _pcm


# ---- and back


def raw_nbytes(head: bytes | memoryview) -> int:
    """Return how large `out` must be. Raises ValueError if this is no head."""
    return _read_head(head).raw_nbytes


def decode(
    codec: int, head: bytes | memoryview, payload: bytes | memoryview, out: memoryview
) -> None:
    """Decode into `out` the memory that was encoded. payload: its parts, one after the other.

    out: writable, of exactly the raw size, at a multiple of its elements' size. Raises ValueError
    if lengths or contents do not fit each other; `out` may then hold anything. Allocates no memory
    but for the tables and, if integers were narrowed, less than `out` has.
    """
    fields = _read_head(head)
    if fields.raw_nbytes != out.nbytes:
        raise ValueError(f"{fields.raw_nbytes} bytes do not fit {out.nbytes}")
    match codec:
        case Codec.TABLES:
            _decode_tables(fields, payload, out)
        case Codec.PCM:
            _decode_pcm(fields, payload, out)
        case Codec.PACKED:
            _decode_packed(fields, payload, out)
        case _:
            raise ValueError(f"no codec has number {codec}")


def _read_head(head: bytes | memoryview) -> _Head:
    if len(head) != _HEAD.size:
        raise ValueError(f"a head has {_HEAD.size} bytes, not {len(head)}")
    return _Head._make(_HEAD.unpack(head))


def _integer(code: bytes) -> np.dtype[np.generic]:
    try:
        return _INTEGERS[code]
    except KeyError:
        raise ValueError(f"no integer type is called {code!r}") from None


def _shown_as(out: memoryview, dtype: np.dtype[np.generic]) -> Array:
    """View `out` as elements. Raises ValueError if its size is no multiple of the elements'."""
    shown = np.frombuffer(out, dtype)
    if not shown.flags.aligned or not shown.flags.writeable:
        raise ValueError(f"no memory for {dtype} elements: not aligned, or read-only")
    return shown


def _need(head: _Head, holds: bool) -> None:
    if not holds:
        raise ValueError(f"no such tensor was sent: {head}")


def _decode_tables(head: _Head, payload: bytes | memoryview, out: memoryview) -> None:
    kernels = _kernels()
    values = _shown_as(out, _integer(head.dtype))
    _need(head, values.dtype.kind == "u" and values.itemsize > 1)
    shape = head.num_channels, kernels.NUM_VALUES
    tables_nbytes = shape[0] * shape[1] * values.itemsize
    _need(head, len(payload) == tables_nbytes + values.size)
    in_turn = head.num_channels * head.inner
    _need(head, values.size > 0 and in_turn > 0 and values.size % in_turn == 0)
    tables = np.frombuffer(payload[:tables_nbytes], values.dtype).reshape(shape).copy()
    indices = np.frombuffer(payload[tables_nbytes:], np.uint8)
    kernels.decode_tables(indices, values, head.num_channels, head.inner, tables)


def _decode_pcm(head: _Head, payload: bytes | memoryview, out: memoryview) -> None:
    values = _shown_as(out, np.dtype("f4"))
    _need(head, len(payload) == 2 * values.size)
    samples = np.frombuffer(payload, np.int16)
    _kernels().decode_pcm(samples if samples.flags.aligned else samples.copy(), values)


def _decode_packed(head: _Head, payload: bytes | memoryview, out: memoryview) -> None:
    values, sent_as = _shown_as(out, _integer(head.dtype)), _integer(head.sent_as)
    if head.sent_as == head.dtype:
        _unpack(payload, out)
        return
    _need(head, sent_as.itemsize < values.itemsize)
    narrow = np.empty(values.size, sent_as)
    _unpack(payload, narrow.data.cast("B"))
    np.copyto(values, narrow, casting="unsafe")


def _unpack(packed: bytes | memoryview, out: memoryview) -> None:
    """Decompress into `out`; never write or allocate more, whatever size the stream claims."""
    unpacker = zstandard.ZstdDecompressor(max_window_size=MAX_WINDOW_NBYTES)
    try:
        with unpacker.stream_reader(packed) as stream:
            num_read = 0
            while num_read < out.nbytes and (more := stream.readinto(out[num_read:])):
                num_read += more
            num_beyond = len(stream.read(1))
    except zstandard.ZstdError as error:
        raise ValueError(f"what was packed is not whole: {error}") from None
    if num_read != out.nbytes or num_beyond:
        raise ValueError(f"{num_read + num_beyond} bytes or more were packed, not {out.nbytes}")
