"""What a channel promises between two real processes."""

import os
import select
import signal
import socket

import pytest

from stoker.wire.channel import Channel, ConnectionLost
from stoker.wire.frame import Kind, pack

PATIENCE_MS = 10_000  # nothing here takes as long


def wait_frame(channel):
    poll = select.poll()
    while (frame := channel.receive_nowait()) is None:
        channel.flush()
        poll.register(channel, select.POLLIN | (select.POLLOUT if channel.has_unsent else 0))
        assert poll.poll(PATIENCE_MS), "nothing came"
    return frame


def send(channel, task_id, blob):
    channel.send(pack(Kind.BATCH, task_id=task_id, blob_nbytes=len(blob)), blob)


def flush_all(channel):
    poll = select.poll()
    poll.register(channel, select.POLLOUT)
    while channel.has_unsent:
        assert poll.poll(PATIENCE_MS), "nobody reads"
        channel.flush()


def echo(channel):
    """The other process: sends every frame back, twice the blob, until the end."""
    try:
        while True:
            frame = wait_frame(channel)
            send(channel, frame.header.task_id, bytes(frame.payload) * 2)
    except ConnectionLost:
        flush_all(channel)


@pytest.fixture
def fork():
    pids, channels = [], []

    def start(work):
        ours, theirs = socket.socketpair()
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                ours.close()
                work(Channel(theirs))
                status = 0
            finally:
                os._exit(status)
        theirs.close()
        pids.append(pid)
        channels.append(Channel(ours))
        return pid, channels[-1]

    yield start
    for channel in channels:
        channel.close()
    for pid in pids:
        os.waitpid(pid, 0)


def test_frames_of_all_sizes_come_back_whole_and_in_order(fork):
    _, channel = fork(echo)
    blobs = [os.urandom(1 << i) for i in range(0, 21, 2)]
    for i, blob in enumerate(blobs):
        send(channel, i, blob)
    for i, blob in enumerate(blobs):
        frame = wait_frame(channel)
        assert (frame.header.task_id, bytes(frame.payload)) == (i, blob * 2)


def test_neither_side_waits_for_the_other_to_read(fork):
    _, channel = fork(echo)
    blob = os.urandom(1 << 20)
    for i in range(16):  # far more than both sockets hold
        send(channel, i, blob)
    assert [wait_frame(channel).header.task_id for _ in range(16)] == list(range(16))


def test_what_was_said_before_a_half_close_is_answered(fork):
    _, channel = fork(echo)
    send(channel, 3, b"last")
    flush_all(channel)
    channel.finish()
    assert bytes(wait_frame(channel).payload) == b"lastlast"
    with pytest.raises(ConnectionLost):
        wait_frame(channel)


def test_a_killed_peer_is_a_lost_connection_after_its_last_whole_frame(fork):
    def die_half_way(channel):
        send(channel, 0, b"whole")
        head = pack(Kind.BATCH, task_id=1, blob_nbytes=1000)
        channel.send(head, b"half")
        os.kill(os.getpid(), signal.SIGKILL)

    _, channel = fork(die_half_way)
    assert bytes(wait_frame(channel).payload) == b"whole"
    with pytest.raises(ConnectionLost):
        wait_frame(channel)


def test_sending_to_a_killed_peer_raises_nothing(fork):
    pid, channel = fork(echo)
    os.kill(pid, signal.SIGKILL)
    fd = os.pidfd_open(pid)
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    assert poll.poll(PATIENCE_MS)
    os.close(fd)
    for i in range(3):
        send(channel, i, b"anybody there?")
    with pytest.raises(ConnectionLost):
        wait_frame(channel)
