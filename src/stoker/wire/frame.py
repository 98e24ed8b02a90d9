"""Packs the header and payload of one message into bytes, and unpacks them.

    header | table of storages and buffers | blob, unless it lies in the arena | extra

Promise: a frame says its own length; a header of another version is refused. Pure.
"""

import json
import struct
from enum import IntEnum
from typing import NamedTuple

from stoker.errors import BrokenGuarantee

MAGIC = b"s\x02"
MAX_WORK_US = (1 << 32) - 1
INLINE = -1  # an offset that means: travels in the message itself


class Kind(IntEnum):
    BEGIN = 0  # trainer -> worker: where to begin; extra holds what is lent, and a Point
    TASK = 1  # trainer -> worker: blob holds the indices, extra the extents that came back
    BATCH = 2  # worker -> trainer
    FAILURE = 3  # worker -> trainer: blob holds torch's ExceptionWrapper
    NOT_INDEPENDENT = 4  # worker -> trainer: a free-standing task that was not one; extra says why
    READY = 5  # worker -> trainer: extra holds how it began
    RETURNED = 6  # trainer -> worker: extra holds extents that came back, large ones
    RESUME = 7  # trainer -> worker: begin the iterable anew; extra holds the seed of a DataPipe
    RERUN = 8  # trainer -> worker: fetch task_id batches that nobody wants; extra holds the indices
    ENDED = 9  # worker -> trainer: the iterable ended; nothing comes until it is resumed
    STATE = 10  # worker -> trainer: extra holds the state that epoch task_id begins with
    RELOAD = 11  # trainer -> worker: extra holds a SavedPoint to go on from, and the indices
    DIVERGED = 12  # worker -> trainer: it did not make again what came after that point


class Flag(IntEnum):
    QUIET = 1  # TASK: run it, the answer is known
    FREE = 2  # TASK: stands alone; run it on behalf of its chain, leave no trace. BATCH: it did
    POINT = 4  # TASK: the answer shall carry a Point; BATCH: extra holds a Point of this chain
    WIRE = 32  # BATCH, FAILURE from another machine: extra ends with the bytes that it took
    SHAPES = 16  # BATCH, from a worker of another machine: extra begins with what its parts show
    STATE = 8  # TASK, RERUN: look at the state after it; BATCH, ENDED: extra holds what was seen


class Header(NamedTuple):
    magic: bytes
    kind: int
    flags: int
    num_storages: int
    num_buffers: int
    task_id: int
    chain: int
    stream_nbytes: int
    """Pickle stream; it opens the blob."""
    blob_nbytes: int
    blob_offset: int
    extra_nbytes: int
    work_us: int = 0
    """BATCH: what the worker took to make it; at most MAX_WORK_US."""

    def payload_nbytes(self) -> int:
        blob = self.blob_nbytes if self.blob_offset == INLINE else 0
        return self.table_nbytes() + blob + self.extra_nbytes

    def table_nbytes(self) -> int:
        return PLACE.size * (self.num_storages + self.num_buffers)


HEADER = struct.Struct("<2sBBIIqiQQqQI")
PLACE = struct.Struct("<qQQ")  # offset in the arena or INLINE, nbytes, bytes cut off in front


def pack(
    kind: Kind,
    *,
    flags: int = 0,
    task_id: int = -1,
    chain: int = -1,
    places: tuple[bytes, int, int] = (b"", 0, 0),
    stream_nbytes: int = 0,
    blob_nbytes: int = 0,
    blob_offset: int = INLINE,
    extra_nbytes: int = 0,
    work_s: float = 0.0,
) -> bytes:
    """Pack header and table. places: packed table, number of storages, number of buffers."""
    table, num_storages, num_buffers = places
    return (
        HEADER.pack(
            MAGIC, kind, flags, num_storages, num_buffers, task_id, chain,
            stream_nbytes, blob_nbytes, blob_offset, extra_nbytes,
            min(int(work_s * 1e6), MAX_WORK_US),
        )
        + table
    )  # fmt: skip


_LENT = struct.Struct("<QQQ")  # offset, nbytes, how many times
_NUM_LENT = _LENGTH = struct.Struct("<I")


def pack_begin(lent: list[tuple[int, int, int]], rest: bytes) -> bytes:
    """Pack the extra of a BEGIN frame. lent: see `Lender.lent`; rest: for the worker alone."""
    return b"".join((_NUM_LENT.pack(len(lent)), *(_LENT.pack(*each) for each in lent), rest))


def unpack_begin(extra: memoryview) -> tuple[list[tuple[int, int, int]], memoryview]:
    (num_lent,) = _NUM_LENT.unpack_from(extra)
    end = _NUM_LENT.size + num_lent * _LENT.size
    lent = [(a, b, c) for a, b, c in _LENT.iter_unpack(extra[_NUM_LENT.size : end])]
    return lent, extra[end:]


_WIRE = struct.Struct("<Q")
WIRE_NBYTES = _WIRE.size


def pack_wire(payload: memoryview, nbytes: int) -> bytes:
    """Pack the payload of a frame with Flag.WIRE. nbytes: what it took between two machines."""
    return bytes(payload) + _WIRE.pack(nbytes)


def unpack_wire(extra: memoryview) -> tuple[memoryview, int]:
    """Return the extra without its byte count, and that count."""
    return extra[:-WIRE_NBYTES], _WIRE.unpack(extra[-WIRE_NBYTES:])[0]


class Shape(NamedTuple):
    """Describes how a storage is viewed. dtype: torch's name; first, strides: in bytes."""

    dtype: str
    first: int
    size: tuple[int, ...]
    strides: tuple[int, ...]


def pack_shapes(shapes: list[Shape | None]) -> bytes:
    """Pack one shape for each storage, to precede the extra of a frame with Flag.SHAPES."""
    text = json.dumps(shapes).encode()
    return _LENGTH.pack(len(text)) + text


def unpack_shapes(extra: memoryview) -> tuple[list[Shape | None], int]:
    """Return the shapes, and how many bytes of the extra they take."""
    (nbytes,) = _LENGTH.unpack_from(extra)
    end = _LENGTH.size + nbytes
    said = json.loads(bytes(extra[_LENGTH.size : end]))
    return [None if shape is None else Shape(*shape) for shape in said], end


def unpack(data: memoryview, start: int) -> Header:
    header = Header._make(HEADER.unpack_from(data, start))
    if header.magic != MAGIC:
        raise BrokenGuarantee(f"a frame starts with {header.magic!r}, not {MAGIC!r}")
    return header
