"""Sends messages between two machines: whole, in order, checked, bodies received in place.

    envelope | head | body | checksum of the body, if there is one

Promise: a message is seen whole, with the bytes that were sent, or the link is lost. Lengths are
believed only after their own checksum; a body goes straight into the memory that its reader names.
A corrupted stream raises Garbled: it allocates nothing and unpickles nothing.
Owner: one thread on each side.
"""

import math
import socket
import ssl
import struct
from collections import deque
from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import NamedTuple

import xxhash

from stoker.clock import thread_cpu_s
from stoker.wire.channel import Buffer, ConnectionLost

# A peer that is well says something this often; one that was not heard for LOST_S is lost.
BEAT_S = 0.5
LOST_S = 2.5

MAGIC = b"sP"
VERSION = 1
HEAD_LIMIT_NBYTES = 1 << 30
_FIELDS = struct.Struct(
    "<2sHHHIIQQ"
)  # magic, version, kind, -, lane, head and body nbytes, head sum
_SUM = struct.Struct("<Q")
ENVELOPE_NBYTES = _FIELDS.size + _SUM.size
# A piece is hashed right after the socket copied it, while it lies in the cache.
# Measured: benchmarks/ingest.py
PIECE_NBYTES = 512 * 1024
# A send of fewer takes as long as the call: a byte takes about 1 ns with TLS, a call some us.
TIMED_NBYTES = 64 * 1024
MEAN_OF = 16  # such sends, a batch or two; the latest count most
_WOULD_BLOCK = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class Word(IntEnum):
    """The kind of a message; its lane: the number of a job, or of a conversation with a worker."""

    BEAT = 0  # nothing to say, but alive
    JOB = 1  # trainer -> host: head holds a Manifest
    WANT = 2  # host -> trainer: head is a control.Digests, of parts that it has not
    PART = 3  # trainer -> host: head holds a digest, body the part
    READY = 4  # host -> trainer: the job is unpacked, and is what it is at the trainer's
    CANNOT = 5  # host -> trainer: it is not; head says why
    FORGET = 6  # trainer -> host: the job has ended
    START = 7  # trainer -> host: head is a control.Begin
    STARTED = 8  # host -> trainer: head holds its pid
    FRAME = 9  # either way: head holds a frame of wire/frame.py, body its large parts
    HANG_UP = 10  # trainer -> host: nothing more is sent to this worker
    SIGNAL = 11  # trainer -> host: head holds a signal's number
    ENDED = 12  # host -> trainer: the worker closed its end; head is a control.Exited
    TEXT = 13  # host -> trainer: head was printed by dataset code; lane: 1 on stdout, 2 on stderr
    DECODES = 14  # trainer -> host: its decoders are loaded; before that no part is to be coded
    REMEMBERED = 15  # either way: head is a control.Remembered; to a host: of one that has differed


class Garbled(ConnectionLost):
    """Raised if what was received is not what a stoker peer sends."""


class Message(NamedTuple):
    """A received message. head: valid as long as wanted; body: where `room` said, or dropped."""

    kind: int
    lane: int
    head: memoryview
    body_nbytes: int


Room = Callable[[Message], Sequence[memoryview] | None]
"""Where a body goes: writable views of together its length; None: nobody wants it.
Raises Garbled on a head that cannot be."""


def nowhere(message: Message) -> None:
    """Give no memory for a body: it is dropped."""


class _Sending:
    """A message that is being sent."""

    __slots__ = ("on_sent", "parts", "trailer")

    def __init__(
        self, parts: list[memoryview], has_body: bool, on_sent: Callable[[], None]
    ) -> None:
        self.parts = deque(parts)
        self.trailer = xxhash.xxh3_64() if has_body else None
        self.on_sent = on_sent


def _nothing() -> None:
    return


class Link:
    """An end of a connection between machines; never blocks. room: gives memory for bodies."""

    def __init__(self, sock: socket.socket, room: Room = nowhere) -> None:
        sock.setblocking(False)
        self._socket = sock
        self.room = room
        self._outbox: deque[_Sending] = deque()
        self._is_first_sent = False  # the outbox's first has its envelope and head behind it
        self._envelope = memoryview(bytearray(ENVELOPE_NBYTES))
        self._trailer = memoryview(bytearray(_SUM.size))
        self._scrap = memoryview(b"")  # where bodies go that nobody wants
        self._num_unwanted_nbytes = 0  # of the body that is coming, beside what is in _wanted
        self.num_received_nbytes = self.num_sent_nbytes = 0
        self._handling_s = 0.0  # CPU time that a byte takes to send
        self._num_timed = 0
        self.pause_at_nbytes: float = math.inf  # received: for now no more is, whatever has come
        self._expect_envelope()

    def fileno(self) -> int:
        return self._socket.fileno()

    def nbytes_per_s(self) -> float | None:
        """Estimate recent throughput: the kernel's delivery rate, and CPU time of this end and the
        other, which encrypt and copy alike; None if it is not known yet.

        Source: linux/tcp.h, struct tcp_info, tcpi_delivery_rate.
        """
        info = self._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 168)
        on_the_way = struct.unpack_from("<Q", info, 160)[0] if len(info) == 168 else 0
        return 1 / (1 / on_the_way + 2 * self._handling_s) if on_the_way else None

    # -- out -----------------------------------------------------------------------------------

    @property
    def has_unsent(self) -> bool:
        return bool(self._outbox)

    def send(
        self,
        kind: int,
        lane: int = 0,
        head: Buffer = b"",
        body: Sequence[Buffer] = (),
        on_sent: Callable[[], None] = _nothing,
    ) -> None:
        """Queue one message. The body must not change before on_sent is called."""
        views = [memoryview(part).cast("B") for part in body if len(part)]
        nbytes = sum(view.nbytes for view in views)
        fields = _FIELDS.pack(
            MAGIC, VERSION, kind, 0, lane, len(head), nbytes, xxhash.xxh3_64_intdigest(head)
        )
        start = b"".join((fields, _SUM.pack(xxhash.xxh3_64_intdigest(fields)), head))
        self._outbox.append(_Sending([memoryview(start), *views], bool(views), on_sent))
        self.flush()

    def flush(self) -> None:
        """Send what the socket takes now. A lost peer is noticed by `receive_nowait`."""
        if not self._outbox:
            return
        began_s, num_before = thread_cpu_s(), self.num_sent_nbytes
        try:
            while self._outbox:
                self._send_some(self._outbox[0])
        except _WOULD_BLOCK:
            pass
        except OSError:
            self._outbox.clear()
        nbytes = self.num_sent_nbytes - num_before
        if nbytes >= TIMED_NBYTES:  # else it says more of calls than of bytes
            handling_s = (thread_cpu_s() - began_s) / nbytes
            self._num_timed = min(self._num_timed + 1, MEAN_OF)
            self._handling_s += (handling_s - self._handling_s) / self._num_timed

    def _send_some(self, sending: _Sending) -> None:
        if sending.parts:
            part = sending.parts[0]
            num_sent = self._socket.send(part[:PIECE_NBYTES])
            self.num_sent_nbytes += num_sent
            if sending.trailer is not None and self._is_first_sent:
                sending.trailer.update(part[:num_sent])
            if num_sent < part.nbytes:
                sending.parts[0] = part[num_sent:]
                return
            sending.parts.popleft()
            self._is_first_sent = True
        if sending.parts:
            return
        if sending.trailer is not None:
            sending.parts.append(memoryview(_SUM.pack(sending.trailer.intdigest())))
            sending.trailer = None
            return
        self._outbox.popleft()
        self._is_first_sent = False
        sending.on_sent()

    # -- in ------------------------------------------------------------------------------------

    def receive_nowait(self) -> Message | None:
        """Return the next message; None if none has come whole. Raises ConnectionLost, Garbled."""
        try:
            while True:
                while self._wanted:
                    if self.num_received_nbytes >= self.pause_at_nbytes:
                        return None
                    self._receive_some()
                message = self._next(self)
                if message is not None:
                    return message
        except _WOULD_BLOCK:
            return None
        except OSError as error:
            raise ConnectionLost(str(error)) from None

    def _receive_some(self) -> None:
        view = self._wanted[0]
        num_read = self._socket.recv_into(view[:PIECE_NBYTES])
        if num_read == 0:
            raise ConnectionLost("end of stream")
        self.num_received_nbytes += num_read
        if self._hash is not None:
            self._hash.update(view[:num_read])
        if num_read == view.nbytes:
            self._wanted.popleft()
        else:
            self._wanted[0] = view[num_read:]

    def _expect_envelope(self) -> None:
        self._wanted: deque[memoryview] = deque([self._envelope])
        self._next: Callable[[Link], Message | None] = Link._take_envelope  # not bound: no cycle
        self._hash: xxhash.xxh3_64 | None = None

    def _take_envelope(self) -> Message | None:
        fields = self._envelope[: _FIELDS.size]
        (checksum,) = _SUM.unpack(self._envelope[_FIELDS.size :])
        if checksum != xxhash.xxh3_64_intdigest(fields):
            raise Garbled("an envelope whose checksum is wrong")
        magic, version, kind, _, lane, head_nbytes, body_nbytes, head_sum = _FIELDS.unpack(fields)
        if (magic, version) != (MAGIC, VERSION):
            raise Garbled(f"a message of {magic!r} version {version}, not {MAGIC!r} {VERSION}")
        if head_nbytes > HEAD_LIMIT_NBYTES:
            raise Garbled(f"a head of {head_nbytes} bytes")
        head = memoryview(bytearray(head_nbytes))
        self._message, self._head_sum = Message(kind, lane, head, body_nbytes), head_sum
        self._wanted = deque([head] if head_nbytes else ())
        self._next = Link._take_head
        return None

    def _take_head(self) -> Message | None:
        message = self._message
        if self._head_sum != xxhash.xxh3_64_intdigest(message.head):
            raise Garbled("a head whose checksum is wrong")
        if not message.body_nbytes:
            self._expect_envelope()
            return message
        views = self.room(message)
        if views is None:
            views, self._num_unwanted_nbytes = (), message.body_nbytes
        elif sum(view.nbytes for view in views) != message.body_nbytes:
            raise Garbled(f"a body of {message.body_nbytes} bytes, its parts are others")
        self._wanted = deque(view for view in views if view.nbytes)
        self._next = Link._take_body
        self._hash = xxhash.xxh3_64()
        return None

    def drop_body(self, lane: int) -> None:
        """Drop the rest of a body that comes on this lane: its memory is not written to again."""
        if self._next is Link._take_body and self._message.lane == lane:
            self._num_unwanted_nbytes += sum(view.nbytes for view in self._wanted)
            self._wanted.clear()

    def _take_body(self) -> Message | None:
        if self._num_unwanted_nbytes:  # into the same small piece of memory again and again
            self._scrap = self._scrap or memoryview(bytearray(PIECE_NBYTES))
            self._wanted.append(self._scrap[: self._num_unwanted_nbytes])
            self._num_unwanted_nbytes -= self._wanted[0].nbytes
            return None
        self._body_sum, self._hash = self._hash.intdigest() if self._hash else 0, None
        self._wanted = deque([self._trailer])
        self._next = Link._take_trailer
        return None

    def _take_trailer(self) -> Message | None:
        if _SUM.unpack(self._trailer)[0] != self._body_sum:
            raise Garbled("a body whose checksum is wrong")
        self._expect_envelope()
        return self._message

    def close(self) -> None:
        self._outbox.clear()
        self._expect_envelope()  # lets go of the memory that a body was coming into
        self._socket.close()
