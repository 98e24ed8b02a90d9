"""Packs what goes along with a frame (its extra) as named sections, and finds each by its name.

    name (1 byte) | nbytes (8 bytes) | data | name | nbytes | data | ...

Promise: the order of sections means nothing, and one that nobody looks for does no harm. Pure.
"""

import json
import struct
from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple

from stoker.errors import BrokenGuarantee


class Section(IntEnum):
    """Says what a section holds. "Pickled" ones come from a process that is trusted with it."""

    TAKEN = 0  # BEGIN: extents of the arena that are not free
    START = 1  # BEGIN: a Point to begin at or None, and whether to tell the fingerprint; pickled
    STARTED = 2  # READY: the fingerprint, and whether the Point was taken up; pickled
    RETURNED = 3  # TASK, RETURNED: offsets of extents that the trainer looks at no more
    INDICES = 4  # RERUN, RELOAD: the indices of a batch
    SEED = 5  # RESUME: the seed of a DataPipe or None
    POINT = 6  # BATCH: a Point of this chain; pickled
    SAVED = 7  # BATCH: a SavedPoint of this chain. RELOAD: the one to go on from; pickled
    STATE = 8  # BATCH, ENDED: what a stateful worker was asked for. STATE: what it begins with
    SHAPES = 9  # BATCH, FAILURE, from worker to host: how its storages are viewed
    WIRE = 10  # BATCH, FAILURE, to the trainer: the bytes that it took between two machines
    WHY = 11  # NOT_INDEPENDENT: what the task did; SHARED: it wrote to shared tensors, on another machine
    GIVEN = 12  # BATCH: offsets of extents that the worker keeps no count of any more
    FAST = 13  # BATCH, ENDED: what is new of faster functions
    SLOW = 14  # BATCH, FAILURE: why it took so long, in words


NO_DATA = memoryview(b"")
SHARED = b"shared"
_HEAD = struct.Struct("<BQ")
_TAKEN = struct.Struct("<QQQ?")
_COUNT = struct.Struct("<Q")


def pack_section(name: Section, data: bytes | bytearray | memoryview) -> bytes:
    return _HEAD.pack(name, len(data)) + data


def unpack_sections(extra: memoryview) -> dict[Section, memoryview]:
    """Return each section's data by its name. Raises BrokenGuarantee if they do not fit."""
    found = {}
    start = 0
    try:
        while start < extra.nbytes:
            name, nbytes = _HEAD.unpack_from(extra, start)
            start += _HEAD.size + nbytes
            found[Section(name)] = extra[start - nbytes : start]
    except (struct.error, ValueError) as error:
        raise BrokenGuarantee(f"the sections of a frame cannot be read: {error}") from None
    if start > extra.nbytes:
        raise BrokenGuarantee("the last section of a frame is cut off")
    return found


class Taken(NamedTuple):
    """An extent that a new worker must not take for free. times: how often it will be told that the
    extent came back; circulates: it goes to the free list then, and is not the worker's own."""

    offset: int
    nbytes: int
    times: int
    circulates: bool


def pack_taken(taken: Sequence[Taken]) -> bytes:
    return pack_section(Section.TAKEN, b"".join(_TAKEN.pack(*each) for each in taken))


def unpack_taken(data: memoryview) -> list[Taken]:
    return [Taken._make(each) for each in _TAKEN.iter_unpack(data)]


def pack_offsets(name: Section, offsets: Sequence[int]) -> bytes:
    """Pack RETURNED or GIVEN; nothing where there are none."""
    if not offsets:
        return b""
    return pack_section(name, struct.pack(f"<{len(offsets)}q", *offsets))


def unpack_offsets(data: memoryview) -> tuple[int, ...]:
    return struct.unpack(f"<{data.nbytes // 8}q", data)


def pack_wire(nbytes: int) -> bytes:
    return pack_section(Section.WIRE, _COUNT.pack(nbytes))


def unpack_wire(data: memoryview) -> int:
    return int(_COUNT.unpack(data)[0])


class Shape(NamedTuple):
    """Describes how a storage is viewed. dtype: torch's name; first, strides: in bytes."""

    dtype: str
    first: int
    size: tuple[int, ...]
    strides: tuple[int, ...]


def pack_shapes(shapes: Sequence[Shape | None]) -> bytes:
    """Pack SHAPES. shapes: one for each storage, None for one that no plain array shows."""
    return pack_section(Section.SHAPES, json.dumps(shapes).encode())


def unpack_shapes(data: memoryview) -> list[Shape | None]:
    return [None if shape is None else Shape(*shape) for shape in json.loads(bytes(data))]
