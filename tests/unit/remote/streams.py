"""A link's stream as bytes: sockets of memory, and the format read by other hands.

`decode` is written from the format's description, not from remote/net/link.py: what it and a Link make
of the same bytes must agree.
"""

import struct
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import xxhash

from stoker.remote.net.link import HEAD_LIMIT_NBYTES, MAGIC, VERSION, Link

FIELDS = struct.Struct("<2sHHHIIQQ")
ENVELOPE_NBYTES = FIELDS.size + 8
MORE, GARBLED, END = "more", "garbled", "end"  # how a stream can stop


class Said(NamedTuple):
    kind: int
    lane: int
    head: bytes
    body: bytes


class Sink:
    """The socket of a Link that only sends: takes at most `limits` bytes a call, again and again."""

    def __init__(self, limits: Sequence[int] = (1 << 30,)) -> None:
        self.data = bytearray()
        self.is_open = True
        self._limits = limits
        self._num_calls = 0

    def setblocking(self, flag: bool) -> None:
        assert not flag

    def send(self, view: memoryview) -> int:
        """A limit of 0 is a socket that is full."""
        limit = self._limits[self._num_calls % len(self._limits)]
        self._num_calls += 1
        if not limit:
            raise BlockingIOError
        self.data += view[:limit]
        return min(limit, len(view))

    def close(self) -> None:
        self.is_open = False


class Source:
    """The socket of a Link that only reads: these bytes, at most `piece_nbytes` a call."""

    __slots__ = ("_at", "_data", "_does_end", "_piece_nbytes")

    def __init__(self, data: bytes, piece_nbytes: int = 1 << 30, does_end: bool = False) -> None:
        self._data = data
        self._at = 0
        self._piece_nbytes = piece_nbytes
        self._does_end = does_end

    def setblocking(self, flag: bool) -> None:
        assert not flag

    def recv_into(self, view: memoryview) -> int:
        nbytes = min(len(view), self._piece_nbytes, len(self._data) - self._at)
        if nbytes:
            view[:nbytes] = self._data[self._at : self._at + nbytes]
            self._at += nbytes
        elif not self._does_end:
            raise BlockingIOError
        return nbytes

    def close(self) -> None:
        self._does_end = True


def encode(messages: Iterable[Said]) -> bytes:
    """As a Link sends them."""
    sink = Sink()
    link = Link(sink)
    for message in messages:
        link.send(message.kind, message.lane, message.head, [message.body])
    assert not link.has_unsent
    return bytes(sink.data)


def envelope(
    kind: int = 9,
    lane: int = 0,
    head: bytes = b"",
    body_nbytes: int = 0,
    head_nbytes: int | None = None,
    magic: bytes = MAGIC,
    version: int = VERSION,
) -> bytes:
    """With a checksum that is right, whatever it says; the head is not in it."""
    head_nbytes = len(head) if head_nbytes is None else head_nbytes
    head_sum = xxhash.xxh3_64_intdigest(head)
    return signed(FIELDS.pack(magic, version, kind, 0, lane, head_nbytes, body_nbytes, head_sum))


def signed(fields: bytes) -> bytes:
    return fields + checksum(fields)


def checksum(data: bytes) -> bytes:
    return xxhash.xxh3_64_intdigest(data).to_bytes(8, "little")


def decode(data: bytes) -> tuple[list[Said], str]:
    """The messages that are whole in it, and why there are no more: MORE or GARBLED."""
    said, at = [], 0
    while True:
        fields = data[at : at + FIELDS.size]
        at += ENVELOPE_NBYTES
        if at > len(data):
            return said, MORE
        if data[at - 8 : at] != checksum(fields):
            return said, GARBLED
        magic, version, kind, _, lane, head_nbytes, body_nbytes, head_sum = FIELDS.unpack(fields)
        if (magic, version) != (b"sP", 1) or head_nbytes > HEAD_LIMIT_NBYTES:
            return said, GARBLED
        if at + head_nbytes > len(data):
            return said, MORE
        head = data[at : at + head_nbytes]
        at += head_nbytes
        if head_sum != xxhash.xxh3_64_intdigest(head):
            return said, GARBLED
        body = data[at : at + body_nbytes]
        if body_nbytes:
            at += body_nbytes + 8
            if at > len(data):
                return said, MORE
            if data[at - 8 : at] != checksum(body):
                return said, GARBLED
        said.append(Said(kind, lane, head, body))
