"""Relays one worker's frames between two arenas: from its own on its host to one at the trainer.

    worker --unix--> HostRelay --link--> TrainerRelay --unix--> trainer

Promise: trainer and worker speak as if they shared an arena; neither knows that they do not. A
large part is read where collate wrote it and received where the trainer will read it; in between
it may be encoded, never changed.
Owner: the one thread of the process on either side.
"""

import ctypes
import math
import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from stoker.remote.net.link import Garbled, Link, Message, Word
from stoker.wire.arena import Arena, Heap, Room
from stoker.wire.channel import Channel, Frame
from stoker.wire.frame import HEADER, INLINE, PLACE, Header, Kind, pack, unpack
from stoker.wire.lossless import Encoder, decode
from stoker.wire.sections import (
    NO_DATA,
    Section,
    Shape,
    pack_offsets,
    pack_section,
    pack_wire,
    unpack_offsets,
    unpack_sections,
    unpack_shapes,
    unpack_taken,
)

_NUM_PARTS = struct.Struct("<I")
_PART = struct.Struct("<BIQQ")  # codec, nbytes of its head, of it as it travels, of it raw
RAW = 0


class _Part(NamedTuple):
    """A large part of a frame as it is sent. codec: RAW, or of wire/lossless."""

    codec: int
    head: memoryview
    nbytes: int
    raw_nbytes: int


class HostRelay:
    """The worker's side: `pump` if its socket is readable, `deliver` what comes by the link.

    encoder: of the link; None: parts are sent as they are. May be set later.
    """

    def __init__(
        self, lane: int, channel: Channel, arena: Arena, link: Link, encoder: Encoder | None = None
    ) -> None:
        self.lane = lane
        self.channel = channel
        self._arena = arena
        self._link = link
        self.encoder = encoder

    def pump(self) -> None:
        """Forward all that the worker has sent. Raises ConnectionLost if it has left."""
        while (frame := self.channel.receive_nowait()) is not None:
            self._send_on(frame)

    def deliver(self, message: Message) -> None:
        self.channel.send(message.head)

    def _send_on(self, frame: Frame) -> None:
        header, payload = frame.header, frame.payload
        shapes: list[Shape | None] = []
        if header.extra_nbytes:
            sections = unpack_sections(frame.extra)
            if (told := sections.pop(Section.SHAPES, None)) is not None:
                shapes = unpack_shapes(told)
                header, payload = _with_extra(frame, sections)
        places = _places(header, payload, shapes)
        parts = [self._part(*place) for place in places]
        table = [
            _PART.pack(part.codec, len(part.head), sum(map(len, part.body)), part.raw_nbytes)
            for part in parts
        ]
        heads = [part.head for part in parts]
        head = [_NUM_PARTS.pack(len(parts)), *table, *heads, HEADER.pack(*header), bytes(payload)]
        offsets = [place.offset for place in places]
        body = [piece for part in parts for piece in part.body]
        self._link.send(
            Word.FRAME,
            self.lane,
            b"".join(head),
            body,
            on_sent=lambda: self._give_back(offsets),
        )

    def _part(self, offset: int, nbytes: int, shape: Shape | None) -> "_Outgoing":
        """Return a part of the arena raw, or encoded if that is faster."""
        view = self._arena.view(offset, nbytes)
        shown = _as_array(view, shape) if self.encoder is not None and shape is not None else None
        coded = None
        if self.encoder is not None and shown is not None:
            coded = self.encoder.encode(shown, self._link.nbytes_per_s())
        if coded is None:
            return _Outgoing(RAW, b"", [view], nbytes)
        pieces = [memoryview(part).cast("B") for part in coded.parts]
        return _Outgoing(int(coded.codec), bytes(coded.head), pieces, nbytes)

    def _give_back(self, offsets: list[int]) -> None:
        """Tell the worker that it may write to these extents again."""
        if offsets:
            extra = pack_offsets(Section.RETURNED, offsets)
            self.channel.send(pack(Kind.RETURNED, extra_nbytes=len(extra)), extra)


class _Outgoing(NamedTuple):
    """A large part with the memory that it is sent from."""

    codec: int
    head: bytes
    body: list[memoryview]
    raw_nbytes: int


class _Place(NamedTuple):
    """A large part's position in a worker's arena, and how its tensor shows it, if known."""

    offset: int
    nbytes: int
    shape: Shape | None


class TrainerRelay:
    """The trainer's side: `pump` if its socket is readable; `room`, then `deliver` per frame."""

    def __init__(self, lane: int, channel: Channel, arena: Arena | None, link: Link) -> None:
        self.lane = lane
        self.channel = channel
        self._arena = arena
        self._heap: Heap | None = None
        self._link = link
        # Of the message that is coming: its parts, their extents, and where they are received.
        self._parts: list[_Part] = []
        self._views: list[memoryview] = []
        self._bodies: list[memoryview] = []

    def pump(self) -> None:
        """Forward all that the trainer has sent. Raises ConnectionLost if it hung up."""
        while (frame := self.channel.receive_nowait()) is not None:
            header, payload = frame.header, frame.payload
            if header.extra_nbytes:
                header, payload = self._for_this_arena(frame)
            if header.kind != Kind.RETURNED:
                self._link.send(Word.FRAME, self.lane, HEADER.pack(*header) + bytes(payload))

    def _for_this_arena(self, frame: Frame) -> tuple[Header, memoryview]:
        """Take what concerns this end's arena out of a frame. Returns what is for the worker."""
        sections = unpack_sections(frame.extra)
        taken = sections.get(Section.TAKEN)
        if taken is not None:
            sections[Section.TAKEN] = NO_DATA
            if self._arena is not None:
                self._heap = Heap(Room(self._arena), unpack_taken(taken))
        returned = sections.pop(Section.RETURNED, NO_DATA)
        if self._heap is not None:
            for offset in unpack_offsets(returned):
                self._heap.drop(offset)
        return _with_extra(frame, sections)

    def room(self, message: Message) -> Sequence[memoryview]:
        """Allocate extents for the parts of a frame, before its body comes. Raises Garbled."""
        self._parts, _ = _split(message.head)
        if sum(part.nbytes for part in self._parts) != message.body_nbytes or any(
            part.codec == RAW and part.nbytes != part.raw_nbytes for part in self._parts
        ):
            raise Garbled("a frame's parts are not its body")
        self._views = [self._allocate(part.raw_nbytes) for part in self._parts]
        self._bodies = [
            view if part.codec == RAW else memoryview(bytearray(part.nbytes))
            for part, view in zip(self._parts, self._views, strict=True)
        ]
        return self._bodies

    def _allocate(self, nbytes: int) -> memoryview:
        if self._arena is not None and nbytes > self._arena.nbytes:
            raise Garbled(f"a part of {nbytes} bytes")
        view = self._heap.allocate(nbytes) if self._heap is not None and nbytes else None
        return memoryview(bytearray(nbytes)) if view is None else view

    def deliver(self, message: Message) -> bool:
        """Hand a frame that has come whole to the trainer; True if a batch. Raises Garbled."""
        parts, frame = _split(message.head)
        header = unpack(frame, 0)
        payload = frame[HEADER.size :]
        if header.kind in (Kind.BATCH, Kind.FAILURE):  # they also tell what they took to come here
            wire = pack_wire(message.head.nbytes + message.body_nbytes)
            payload = memoryview(bytes(payload) + wire)
            header = header._replace(extra_nbytes=header.extra_nbytes + len(wire))
        if not parts:
            self.channel.send(HEADER.pack(*header), payload)
            return header.kind == Kind.BATCH
        for part, view, body in zip(self._parts, self._views, self._bodies, strict=True):
            if part.codec != RAW:
                try:
                    decode(part.codec, part.head, body, view)
                except ValueError as error:
                    raise Garbled(f"a coded part cannot be: {error}") from None
        views, self._views, self._bodies = self._views, [], []
        self._deliver_parts(header, payload, views)
        return header.kind == Kind.BATCH

    def _deliver_parts(self, header: Header, payload: memoryview, views: list[memoryview]) -> None:
        """Send a frame to the trainer that names these extents in place of the worker's."""
        coming = iter(views)
        table = payload[: header.table_nbytes()]
        rest = payload[table.nbytes :]
        blob: list[memoryview] = []
        if header.blob_offset != INLINE:
            offset, inline = self._placed(next(coming))
            header = header._replace(blob_offset=offset)
            blob += [inline] if inline is not None else []
        else:
            blob.append(rest[: header.stream_nbytes])
            rest = rest[header.stream_nbytes :]
        places = []
        for offset, nbytes, first in PLACE.iter_unpack(table):
            inline = None
            if offset != INLINE:
                offset, inline = self._placed(next(coming))
            elif header.blob_offset == INLINE:
                inline, rest = rest[:nbytes], rest[nbytes:]
            blob += [inline] if inline is not None else []
            places.append(PLACE.pack(offset, nbytes, first))
        extra = payload[payload.nbytes - header.extra_nbytes :]
        self._send(header, b"".join(places), blob, extra)

    def _send(
        self, header: Header, table: bytes, blob: list[memoryview], extra: memoryview
    ) -> None:
        if header.blob_offset == INLINE:
            header = header._replace(blob_nbytes=sum(part.nbytes for part in blob))
        elif blob:
            raise Garbled("no memory is left for a large part of a frame whose stream is large")
        self.channel.send(HEADER.pack(*header), table, *blob, extra)

    def _placed(self, view: memoryview) -> tuple[int, memoryview | None]:
        """Return a part's offset in the arena; INLINE and the part itself if the arena was full."""
        heap = self._heap
        if heap is not None and view.nbytes:
            offset = ctypes.addressof(ctypes.c_char.from_buffer(view)) - heap.arena.address
            if heap.find(heap.arena.address + offset) is not None:
                heap.hold(offset)
                return offset, None
        return INLINE, view


def _with_extra(frame: Frame, sections: dict[Section, memoryview]) -> tuple[Header, memoryview]:
    """Return a frame's header and payload with these sections in place of its own."""
    extra = b"".join(pack_section(name, data) for name, data in sections.items())
    before = frame.payload[: len(frame.payload) - frame.header.extra_nbytes]
    return frame.header._replace(extra_nbytes=len(extra)), memoryview(bytes(before) + extra)


def _places(header: Header, payload: memoryview, shapes: list[Shape | None]) -> list[_Place]:
    """List the parts of a worker's frame that lie in its arena, in the order of its table."""
    found = []
    if header.blob_offset != INLINE:
        found.append(_Place(header.blob_offset, header.blob_nbytes, None))
    table = payload[: header.table_nbytes()]
    for number, (offset, nbytes, first) in enumerate(PLACE.iter_unpack(table)):
        shape = shapes[number] if number < len(shapes) else None
        if shape is not None and shape.first != first:
            shape = None  # it does not show the part from its beginning
        if offset != INLINE:
            found.append(_Place(offset, nbytes, shape))
    return found


def _as_array(view: memoryview, shape: Shape) -> np.ndarray[Any, Any] | None:
    """Return a part as its tensor shows it; None if that is not all of it, or no plain array."""
    dtype = np.dtype(_DTYPES.get(shape.dtype, shape.dtype)) if shape.dtype in _KNOWN else None
    if dtype is None or math.prod(shape.size) * dtype.itemsize != view.nbytes:
        return None
    try:
        return np.ndarray(shape.size, dtype, view, 0, shape.strides)
    except ValueError:  # strides by which it shows some of it twice
        return None


_DTYPES = {"bfloat16": "float16"}  # of the same width: an encoder looks at bits
_KNOWN = {
    "bfloat16", "bool", "float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8",
    "uint16", "uint32", "uint64",
}  # fmt: skip


def _split(head: memoryview) -> tuple[list[_Part], memoryview]:
    """Split a FRAME message's head into the parts it announces and the frame. Raises Garbled."""
    try:
        (num_parts,) = _NUM_PARTS.unpack_from(head)
        end = heads_end = _NUM_PARTS.size + num_parts * _PART.size
        parts = []
        for codec, head_nbytes, nbytes, raw_nbytes in _PART.iter_unpack(
            head[_NUM_PARTS.size : end]
        ):
            part_head = head[heads_end : heads_end + head_nbytes]
            parts.append(_Part(codec, part_head, nbytes, raw_nbytes))
            heads_end += head_nbytes
    except struct.error:
        raise Garbled("a frame's parts do not fit its head") from None
    if end > head.nbytes or heads_end + HEADER.size > head.nbytes:
        raise Garbled("a head that is cut off")
    return parts, head[heads_end:]
