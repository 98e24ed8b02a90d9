"""A channel's parsing and queueing, on a pair of sockets in one process."""

import socket

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stoker.errors import BrokenGuarantee
from stoker.wire.channel import BUFFER_NBYTES, Channel, ConnectionLost
from stoker.wire.frame import HEADER, Kind, pack


@pytest.fixture
def ends():
    ours, theirs = map(Channel, socket.socketpair())
    yield ours, theirs
    ours.close()
    theirs.close()


@pytest.fixture
def raw():
    """A plain socket, and the channel at its other end."""
    plain, other = socket.socketpair()
    channel = Channel(other)
    yield plain, channel
    plain.close()
    channel.close()


def frame_of(blob, extra=b"", task_id=0):
    head = pack(Kind.TASK, task_id=task_id, blob_nbytes=len(blob), extra_nbytes=len(extra))
    return head, blob, extra


def receive_all(channel):
    frames = []
    while (frame := channel.receive_nowait()) is not None:
        frames.append((frame.header.task_id, bytes(frame.payload), bytes(frame.extra)))
    return frames


def test_a_frame_arrives_whole_with_its_extra(ends):
    ours, theirs = ends
    assert theirs.receive_nowait() is None
    ours.send(*frame_of(b"blob", b"extra", 5))
    assert receive_all(theirs) == [(5, b"blobextra", b"extra")]


def test_both_directions_are_open(ends):
    for sender, receiver in (ends, ends[::-1]):
        sender.send(*frame_of(b"x"))
        assert len(receive_all(receiver)) == 1


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.integers(0, 700), min_size=1, max_size=8),
    st.lists(st.integers(1, 900), min_size=1, max_size=50),
)
def test_however_the_bytes_are_cut_frames_come_whole_and_in_order(sizes, cuts):
    stream = b"".join(b"".join(frame_of(bytes([i]) * n, b"e", i)) for i, n in enumerate(sizes))
    plain, other = socket.socketpair()
    channel = Channel(other)
    frames, position = [], 0
    for cut in [*cuts, len(stream)]:
        plain.sendall(stream[position : position + cut])
        position += cut
        frames += receive_all(channel)
    plain.close()
    channel.close()
    assert frames == [(i, bytes([i]) * n + b"e", b"e") for i, n in enumerate(sizes)]


@pytest.mark.parametrize(
    "nbytes", [BUFFER_NBYTES - HEADER.size + i for i in (-1, 0, 1)] + [3 * BUFFER_NBYTES]
)
def test_a_frame_as_large_as_the_buffer_or_larger_arrives(ends, nbytes):
    ours, theirs = ends
    blobs = [bytes([i]) * size for i, size in enumerate((10, nbytes, 20, nbytes, 5))]
    for i, blob in enumerate(blobs):
        ours.send(*frame_of(blob, task_id=i))
    received = []
    while len(received) < len(blobs):
        received += receive_all(theirs)
        ours.flush()
    assert received == [(i, blob, b"") for i, blob in enumerate(blobs)]
    assert not ours.has_unsent


def test_sending_never_waits_and_what_is_left_goes_later(ends):
    ours, theirs = ends
    for i in range(20):
        ours.send(*frame_of(bytes(1 << 18), task_id=i))
    assert ours.has_unsent
    received = []
    while ours.has_unsent:
        received += receive_all(theirs)
        ours.flush()
    received += receive_all(theirs)
    assert [task_id for task_id, _, _ in received] == list(range(20))


def test_many_small_parts_go_in_order(ends):
    ours, theirs = ends
    head = pack(Kind.TASK, task_id=0, blob_nbytes=100)
    ours.send(head, *(bytes([i]) for i in range(100)))
    assert receive_all(theirs) == [(0, bytes(range(100)), b"")]


def test_what_was_sent_before_the_end_still_arrives(raw):
    plain, channel = raw
    plain.sendall(b"".join(frame_of(b"last words")))
    plain.close()
    frame = channel.receive_nowait()
    assert frame is not None and bytes(frame.payload) == b"last words"
    with pytest.raises(ConnectionLost):
        channel.receive_nowait()


def test_an_end_in_the_middle_of_a_frame_is_an_end(raw):
    plain, channel = raw
    plain.sendall(b"".join(frame_of(b"half of it"))[:-3])
    plain.close()
    with pytest.raises(ConnectionLost):
        channel.receive_nowait()


def test_sending_to_nobody_raises_nothing_and_keeps_nothing(raw):
    plain, channel = raw
    plain.close()
    channel.send(*frame_of(b"x"))
    channel.send(*frame_of(b"x"))
    assert not channel.has_unsent
    channel.finish()


def test_finishing_ends_the_other_side_but_not_what_it_says(ends):
    ours, theirs = ends
    ours.finish()
    with pytest.raises(ConnectionLost):
        theirs.receive_nowait()
    theirs.send(*frame_of(b"still here"))
    assert len(receive_all(ours)) == 1


def test_a_stranger_is_refused(raw):
    plain, channel = raw
    plain.sendall(b"GET / HTTP/1.1\r\n" * 10)
    with pytest.raises(BrokenGuarantee):
        channel.receive_nowait()
