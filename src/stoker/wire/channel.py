"""Sends and receives frames over a socket between two processes of one machine.

Promise: `send` never blocks and keeps order; a frame is seen whole or not at all.
Owner: one thread on each side.
"""

import socket
from collections import deque
from typing import NamedTuple

from stoker import descriptors
from stoker.wire.frame import HEADER, Header, unpack

Buffer = bytes | bytearray | memoryview

# One read takes all that a loader of small batches has queued (the kernel holds about 200 KB).
# Measured: benchmarks/handover_small.py
BUFFER_NBYTES = 256 * 1024
# Of a whole frame: to copy so much costs less than to send it in parts.
# Measured: benchmarks/handover_small.py
SMALL_NBYTES = 32 * 1024


class ConnectionLost(Exception):
    """The other side closed, died or reset."""


class Frame(NamedTuple):
    """A message; `payload` is valid until the next `receive_nowait`."""

    header: Header
    payload: memoryview

    @property
    def extra(self) -> memoryview:
        return self.payload[len(self.payload) - self.header.extra_nbytes :]


class Channel:
    """One end of a non-blocking stream socket: sends and receives frames."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self._socket = sock
        self._is = descriptors.of(sock.fileno())
        self._outbox: deque[memoryview] = deque()
        self._buffer = bytearray(BUFFER_NBYTES)
        self._view = memoryview(self._buffer)
        self._start = self._end = 0  # unread part of the buffer

    def fileno(self) -> int:
        return self._socket.fileno()

    @property
    def has_unsent(self) -> bool:
        return bool(self._outbox)

    @property
    def has_unread(self) -> bool:
        """Whether bytes were received but not yet returned: poll() does not see them."""
        return self._end > self._start

    def send(self, *parts: Buffer) -> None:
        """Queue the parts of one frame and send what the socket takes now.

        The parts must not change before `has_unsent` is false. A peer that is gone is
        noticed by `receive_nowait`, not here.
        """
        if not self._outbox and sum(map(len, parts)) <= SMALL_NBYTES:
            left = self._sent_whole(b"".join(parts))
            if not left:
                return
            parts = (left,)
        self._outbox.extend(memoryview(part).cast("B") for part in parts if len(part))
        self.flush()

    def _sent_whole(self, data: bytes) -> Buffer:
        """Send a small frame at once. Returns what is left of it."""
        try:
            num_sent = self._socket.send(data, socket.MSG_NOSIGNAL)
        except BlockingIOError:
            return data
        except OSError:
            return b""  # the reader's side of this channel will say why
        return b"" if num_sent == len(data) else memoryview(data)[num_sent:]

    def flush(self) -> None:
        """Send what the socket takes now."""
        while self._outbox:
            batch = [self._outbox[i] for i in range(min(len(self._outbox), 16))]
            try:
                num_sent = self._socket.sendmsg(batch, (), socket.MSG_NOSIGNAL)
            except BlockingIOError:
                return
            except OSError:
                self._outbox.clear()  # the reader's side of this channel will say why
                return
            self._forget(num_sent)

    def receive_nowait(self) -> Frame | None:
        """Return the next frame; None if it has not come whole. Raises ConnectionLost."""
        while True:
            frame = self._parse()
            if frame is not None:
                return frame
            try:
                num_read = self._socket.recv_into(self._view[self._end :])
            except BlockingIOError:
                return None
            except OSError as error:
                raise ConnectionLost(str(error)) from None
            if num_read == 0:
                raise ConnectionLost("end of stream")
            self._end += num_read

    def finish(self) -> None:
        """Tell the other side that nothing more will be sent."""
        try:
            self._socket.shutdown(socket.SHUT_WR)
        except OSError:
            self._outbox.clear()  # gone already

    def close(self) -> None:
        self._outbox.clear()
        descriptors.close_socket(self._socket, self._is)

    def _parse(self) -> Frame | None:
        num_unread = self._end - self._start
        if num_unread < HEADER.size:
            self._make_room(HEADER.size)
            return None
        header = unpack(self._view, self._start)
        frame_nbytes = HEADER.size + header.payload_nbytes()
        if num_unread < frame_nbytes:
            self._make_room(frame_nbytes)
            return None
        begin = self._start + HEADER.size
        self._start += frame_nbytes
        return Frame(header, self._view[begin : self._start])

    def _make_room(self, frame_nbytes: int) -> None:
        """Make room behind the unread part for the rest of a frame; may move that part."""
        if self._start + frame_nbytes <= len(self._buffer) and self._start != self._end:
            return
        if self._start == self._end and frame_nbytes <= len(self._buffer) == BUFFER_NBYTES:
            self._start = self._end = 0
            return
        unread = bytes(self._view[self._start : self._end])
        if frame_nbytes > len(self._buffer) or len(self._buffer) > BUFFER_NBYTES >= frame_nbytes:
            self._buffer = bytearray(max(frame_nbytes, BUFFER_NBYTES))
            self._view = memoryview(self._buffer)
        self._view[: len(unread)] = unread
        self._start, self._end = 0, len(unread)

    def _forget(self, num_sent: int) -> None:
        while num_sent:
            part = self._outbox[0]
            if len(part) > num_sent:
                self._outbox[0] = part[num_sent:]
                return
            num_sent -= len(part)
            self._outbox.popleft()
