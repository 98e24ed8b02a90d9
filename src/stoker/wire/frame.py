"""Packs the header and payload of one message into bytes, and unpacks them.

    header | table of storages and buffers | blob, unless it lies in the arena | extra

Promise: a frame says its own length; a header of another version is refused. Pure.
"""

import struct
from enum import IntEnum
from typing import NamedTuple

from stoker.errors import BrokenGuarantee

MAGIC = b"s\x03"
MAX_WORK_US = (1 << 32) - 1
INLINE = -1  # an offset that means: travels in the message itself


class Kind(IntEnum):
    """Says what a frame is; its extra holds sections, see `Section`."""

    BEGIN = 0  # trainer -> worker: where to begin
    TASK = 1  # trainer -> worker: blob holds the indices
    BATCH = 2  # worker -> trainer
    FAILURE = 3  # worker -> trainer: blob holds torch's ExceptionWrapper
    NOT_INDEPENDENT = 4  # worker -> trainer: a free-standing task that was not one
    READY = 5  # worker -> trainer: it has begun
    RETURNED = 6  # trainer -> worker: extents came back, large ones
    RESUME = 7  # trainer -> worker: begin the iterable anew
    RERUN = 8  # trainer -> worker: fetch task_id batches that nobody wants
    ENDED = 9  # worker -> trainer: the iterable ended; nothing comes until it is resumed
    STATE = 10  # worker -> trainer: the state that epoch task_id begins with
    RELOAD = 11  # trainer -> worker: go on from a SavedPoint
    DIVERGED = 12  # worker -> trainer: it did not make again what came after that point


class Flag(IntEnum):
    QUIET = 1  # TASK: run it, the answer is known
    FREE = 2  # TASK: stands alone; run it on behalf of its chain, leave no trace. BATCH: it did
    WATCH = 4  # TASK: the answer shall carry a Point
    STATE = 8  # TASK, RERUN: tell the state after it


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


def unpack(data: memoryview, start: int) -> Header:
    header = Header._make(HEADER.unpack_from(data, start))
    if header.magic != MAGIC:
        raise BrokenGuarantee(f"a frame starts with {header.magic!r}, not {MAGIC!r}")
    return header
