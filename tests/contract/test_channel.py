"""What every end of a stream promises between two real processes: Channel's, and Link's.

A Channel's frames travel inside one machine; a Link's messages between two, plain and in TLS.
"""

import os
import select
import signal
import socket

import pytest

from stoker.remote.net.link import Link
from stoker.remote.net.tls import client_context, make_certificate, server_context
from stoker.wire.channel import Channel, ConnectionLost
from stoker.wire.frame import Kind, pack
from tests.unit.remote.streams import Said, encode

PATIENCE_MS = 10_000  # nothing here takes as long


class ChannelWire:
    """Frames between processes of one machine."""

    def pair(self):
        return socket.socketpair()

    def open(self, sock, is_ours):
        return Channel(sock)

    def send(self, end, number, blob):
        end.send(pack(Kind.BATCH, task_id=number, blob_nbytes=len(blob)), blob)

    def receive_nowait(self, end):
        frame = end.receive_nowait()
        return frame and (frame.header.task_id, bytes(frame.payload))

    def send_half(self, end, number):
        end.send(pack(Kind.BATCH, task_id=number, blob_nbytes=1000), b"half")


class LinkWire:
    """Messages over TCP."""

    def pair(self):
        with socket.create_server(("127.0.0.1", 0)) as server:
            ours = socket.create_connection(server.getsockname())
            theirs, _ = server.accept()
        return ours, theirs

    def open(self, sock, is_ours):
        self._socket = sock
        self._bodies = []
        return Link(sock, self._room)

    def _room(self, message):
        """Two parts, so that a body is spread."""
        body = memoryview(bytearray(message.body_nbytes))
        self._bodies.append(body)
        return [body[: len(body) // 3], body[len(body) // 3 :]]

    def send(self, end, number, blob):
        end.send(9, number, b"head", [blob])

    def receive_nowait(self, end):
        message = end.receive_nowait()
        if message is None:
            return None
        assert bytes(message.head) == b"head"
        return message.lane, bytes(self._bodies.pop(0)) if message.body_nbytes else b""

    def send_half(self, end, number):
        message = encode([Said(9, number, b"head", bytes(1000))])
        self._socket.sendall(message[: len(message) // 2])


class TlsWire(LinkWire):
    def __init__(self):
        self._certificate, self._key = make_certificate()

    def open(self, sock, is_ours):
        sock.settimeout(PATIENCE_MS / 1000)
        if is_ours:
            sock = client_context(self._certificate).wrap_socket(sock)
        else:
            context = server_context(self._certificate, self._key)
            sock = context.wrap_socket(sock, server_side=True)
        return super().open(sock, is_ours)


@pytest.fixture(params=[ChannelWire, LinkWire, TlsWire])
def wire(request):
    return request.param()


def wait_message(wire, end):
    poll = select.poll()
    while (message := wire.receive_nowait(end)) is None:
        end.flush()
        poll.register(end, select.POLLIN | (select.POLLOUT if end.has_unsent else 0))
        assert poll.poll(PATIENCE_MS), "nothing came"
    return message


def flush_all(end):
    poll = select.poll()
    poll.register(end, select.POLLOUT)
    while end.has_unsent:
        assert poll.poll(PATIENCE_MS), "nobody reads"
        end.flush()


def echo(wire, end):
    """The other process: sends everything back, twice the blob, until the end."""
    try:
        while True:
            number, blob = wait_message(wire, end)
            wire.send(end, number, blob * 2)
    except ConnectionLost:
        flush_all(end)


@pytest.fixture
def fork(wire):
    pids, ends = [], []

    def start(work):
        ours, theirs = wire.pair()
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                ours.close()
                work(wire, wire.open(theirs, is_ours=False))
                status = 0
            finally:
                os._exit(status)
        theirs.close()
        pids.append(pid)
        ends.append(wire.open(ours, is_ours=True))
        return pid, ends[-1]

    yield start
    for end in ends:
        end.close()
    for pid in pids:
        os.waitpid(pid, 0)


def test_messages_of_all_sizes_come_back_whole_and_in_order(wire, fork):
    _, end = fork(echo)
    blobs = [b"", *(os.urandom(1 << i) for i in range(0, 21, 2))]
    for i, blob in enumerate(blobs):
        wire.send(end, i, blob)
    for i, blob in enumerate(blobs):
        assert wait_message(wire, end) == (i, blob * 2)


def test_neither_side_waits_for_the_other_to_read(wire, fork):
    _, end = fork(echo)
    blob = os.urandom(1 << 20)
    for i in range(16):  # far more than both sockets hold
        wire.send(end, i, blob)
    assert end.has_unsent
    for i in range(16):
        assert wait_message(wire, end) == (i, blob * 2)


@pytest.mark.parametrize("wire", [ChannelWire], indirect=True)  # a Link only ever ends as a whole
def test_what_was_said_before_a_half_close_is_answered(wire, fork):
    _, end = fork(echo)
    wire.send(end, 3, b"last")
    flush_all(end)
    end.finish()
    assert wait_message(wire, end) == (3, b"lastlast")
    with pytest.raises(ConnectionLost):
        wait_message(wire, end)


def test_a_killed_peer_is_a_lost_connection_after_its_last_whole_message(wire, fork):
    def die_half_way(wire, end):
        wire.send(end, 0, b"whole")
        wire.send_half(end, 1)
        os.kill(os.getpid(), signal.SIGKILL)

    _, end = fork(die_half_way)
    assert wait_message(wire, end) == (0, b"whole")
    with pytest.raises(ConnectionLost):
        wait_message(wire, end)


def test_sending_to_a_killed_peer_raises_nothing(wire, fork):
    pid, end = fork(echo)
    os.kill(pid, signal.SIGKILL)
    fd = os.pidfd_open(pid)
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    assert poll.poll(PATIENCE_MS)
    os.close(fd)
    for i in range(3):
        wire.send(end, i, b"anybody there?")
    with pytest.raises(ConnectionLost):
        wait_message(wire, end)
    wire.send(end, 3, b"nor later")
    assert not end.has_unsent
