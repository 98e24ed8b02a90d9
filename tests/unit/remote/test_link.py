"""A link's messages: where bodies land, what is refused, and any cut of the stream."""

import socket

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from stoker.remote.net import link as link_module
from stoker.remote.net.link import HEAD_LIMIT_NBYTES, PIECE_NBYTES, Garbled, Link
from stoker.wire.channel import ConnectionLost
from tests.unit.remote.streams import (
    ENVELOPE_NBYTES,
    FIELDS,
    GARBLED,
    Said,
    Sink,
    Source,
    checksum,
    decode,
    encode,
    envelope,
    signed,
)

MESSAGE = Said(9, 4, b"the head", b"and the body of it")
AFTER = Said(2, 7, b"what comes after", b"")
NEVER = b"\xa5"


class Rooms:
    """Room for every body, or for those of some lanes; keeps what was received."""

    def __init__(self, data, piece_nbytes=1 << 30, does_end=False, unwanted=()):
        self.bodies = []
        self.said = []
        self._unwanted = unwanted
        self.link = Link(Source(data, piece_nbytes, does_end), self._room)

    def _room(self, message):
        if message.lane in self._unwanted:
            return None
        self.bodies.append(memoryview(bytearray(NEVER * message.body_nbytes)))
        return [self.bodies[-1]]

    def receive(self):
        """All that has come, in `said`."""
        while (message := self.link.receive_nowait()) is not None:
            has_body = message.body_nbytes and message.lane not in self._unwanted
            body = bytes(self.bodies.pop(0)) if has_body else b""
            self.said.append(Said(message.kind, message.lane, bytes(message.head), body))
        return self.said


# -- bodies ------------------------------------------------------------------------------------


@pytest.mark.parametrize("piece_nbytes", [1, 7, 1 << 30])
def test_a_body_lands_in_the_very_memory_that_room_named(piece_nbytes):
    memory = bytearray(NEVER * 30)
    asked = []

    def room(message):
        asked.append((message.kind, message.lane, bytes(message.head), message.body_nbytes))
        view = memoryview(memory)
        return [view[20:25], view[0:0], view[2:14], view[29:30]]

    link = Link(Source(encode([MESSAGE, AFTER]), piece_nbytes), room)
    message = link.receive_nowait()
    assert asked == [(9, 4, b"the head", 18)]
    assert (message.kind, message.lane, bytes(message.head), message.body_nbytes) == asked[0]
    assert memory[20:25] + memory[2:14] + memory[29:30] == MESSAGE.body
    assert memory[:2] + memory[14:20] + memory[25:29] == NEVER * 12
    assert bytes(link.receive_nowait().head) == AFTER.head
    assert len(asked) == 1, "no room is asked for where there is no body"


@pytest.mark.parametrize("difference_nbytes", [-1, 1])
def test_room_of_another_size_than_the_body_is_garbled(difference_nbytes):
    memory = memoryview(bytearray(len(MESSAGE.body) + difference_nbytes))
    link = Link(Source(encode([MESSAGE])), lambda message: [memory])
    with pytest.raises(Garbled, match="a body of 18 bytes"):
        link.receive_nowait()
    assert not any(memory)


@pytest.mark.parametrize("nbytes", [1, PIECE_NBYTES, 3 * PIECE_NBYTES + 5])
def test_a_body_that_nobody_wants_is_dropped_and_what_follows_comes_whole(nbytes):
    dropped = Said(9, 1, b"unwanted", b"x" * nbytes)
    rooms = Rooms(encode([dropped, MESSAGE, AFTER]), unwanted=[1])
    assert rooms.receive() == [dropped._replace(body=b""), MESSAGE, AFTER]


def test_a_body_that_nobody_wants_is_checked_like_any_other():
    data = bytearray(encode([MESSAGE]))
    data[-9] ^= 1
    with pytest.raises(Garbled, match="a body"):
        Rooms(bytes(data), unwanted=[MESSAGE.lane]).receive()


def test_a_head_comes_without_its_body_being_waited_for():
    rooms = Rooms(encode([AFTER]) + encode([MESSAGE])[:-1])
    assert rooms.receive() == [AFTER]
    assert bytes(rooms.bodies[0]) == MESSAGE.body, "received, and not shown before it is checked"


@pytest.mark.parametrize("seen_nbytes", [0, 1, 5, 11, 17, 18])
def test_a_body_dropped_on_its_way_is_written_no_more_and_the_stream_goes_on(seen_nbytes):
    first, second = memoryview(bytearray(NEVER * 5)), memoryview(bytearray(NEVER * 13))
    data = encode([MESSAGE, AFTER])
    source = Source(data[: ENVELOPE_NBYTES + len(MESSAGE.head) + seen_nbytes])
    link = Link(source, lambda message: [first, second])
    assert link.receive_nowait() is None
    link.drop_body(MESSAGE.lane + 1)  # another's
    link.drop_body(MESSAGE.lane)
    link.drop_body(MESSAGE.lane)  # twice does no harm
    source._data = data
    message = link.receive_nowait()
    assert bytes(message.head) == MESSAGE.head
    written = MESSAGE.body[:seen_nbytes] + NEVER * (18 - seen_nbytes)
    assert bytes(first) + bytes(second) == written
    assert bytes(link.receive_nowait().head) == AFTER.head
    assert link.receive_nowait() is None


def test_a_large_body_dropped_on_its_way_leaves_its_memory_and_that_of_other_lanes_alone():
    large = Said(9, 1, b"", bytes(range(256)) * (PIECE_NBYTES // 64))
    data = encode([large, MESSAGE])
    source = Source(data[: PIECE_NBYTES + 99])
    memory = memoryview(bytearray(len(large.body)))
    rooms = {1: [memory], MESSAGE.lane: [memoryview(bytearray(18))]}
    link = Link(source, lambda message: rooms[message.lane])
    assert link.receive_nowait() is None
    link.drop_body(MESSAGE.lane)  # not what is coming
    source._data = data[: 2 * PIECE_NBYTES]
    assert link.receive_nowait() is None
    num_seen = 2 * PIECE_NBYTES - ENVELOPE_NBYTES
    assert memory[:num_seen] == large.body[:num_seen]
    link.drop_body(1)
    memory[:] = bytes(len(memory))
    source._data = data
    assert link.receive_nowait().lane == 1
    assert link.receive_nowait().lane == MESSAGE.lane
    assert not any(memory)
    assert bytes(rooms[MESSAGE.lane][0]) == MESSAGE.body


def test_a_closed_link_lets_go_of_the_memory_that_a_body_was_coming_into():
    memory = bytearray(len(MESSAGE.body))
    link = Link(Source(encode([MESSAGE])[:-10]), lambda message: [memoryview(memory)])
    assert link.receive_nowait() is None
    with pytest.raises(BufferError):
        memory.append(0)
    link.close()
    memory.append(0)


def test_a_link_that_is_forgotten_is_gone_at_once():
    memory = bytearray(len(MESSAGE.body))
    link = Link(Source(encode([MESSAGE])[:-10]), lambda message: [memoryview(memory)])
    assert link.receive_nowait() is None
    del link
    memory.append(0)  # no cycle keeps it until garbage is collected


# -- sending -----------------------------------------------------------------------------------


def test_on_sent_is_called_once_and_not_before_the_body_was_handed_over():
    data = encode([MESSAGE])
    sink = Sink(limits=[1, 0])  # a byte, and the socket is full again
    link, sent = Link(sink), []
    body = bytearray(MESSAGE.body)
    link.send(9, 4, MESSAGE.head, [body[:5], body[5:]], on_sent=lambda: sent.append(len(sink.data)))
    while link.has_unsent:
        assert len(sent) == 0
        link.flush()
    link.flush()
    assert sent == [len(data)]
    assert bytes(sink.data) == data
    assert link.num_sent_nbytes == len(data)


def test_on_sent_may_send_and_order_is_kept():
    sink = Sink()
    link = Link(sink)
    link.send(9, 4, MESSAGE.head, [MESSAGE.body], on_sent=lambda: link.send(*AFTER[:3]))
    assert bytes(sink.data) == encode([MESSAGE, AFTER])


def test_a_body_of_no_bytes_is_no_body():
    sink = Sink()
    Link(sink).send(2, 7, AFTER.head, [b"", memoryview(b"")])
    assert bytes(sink.data) == encode([AFTER])


def test_a_closed_link_keeps_nothing_to_send():
    sink, sent = Sink(limits=[3, 0]), []
    link = Link(sink)
    link.send(9, 4, MESSAGE.head, [MESSAGE.body], on_sent=lambda: sent.append(1))
    assert link.has_unsent
    link.close()
    assert not link.has_unsent and not sink.is_open and not sent


def speed(monkeypatch, handling_s: float) -> float:
    """Of a loopback link where a byte takes so long to send, and no time on its way."""
    clock = {"now_s": 0.0}
    with socket.create_server(("127.0.0.1", 0)) as server:
        there = Link(socket.create_connection(server.getsockname()))
        here = Link(server.accept()[0])
    monkeypatch.setattr(link_module, "thread_cpu_s", lambda: clock["now_s"])

    class Slow:
        """There is no other way to make sending dear."""

        def __init__(self, sock: socket.socket) -> None:
            self.sock = sock

        def send(self, part: memoryview) -> int:
            num_sent = self.sock.send(part)
            clock["now_s"] += num_sent * handling_s
            return num_sent

        def __getattr__(self, name: str) -> object:
            return getattr(self.sock, name)

    there._socket = Slow(there._socket)
    there.send(1, 0, b"", [bytes(8 << 20)])
    while here.num_received_nbytes < 8 << 20:
        here.receive_nowait()
        there.flush()
    try:
        return there.nbytes_per_s()
    finally:
        there.close()
        here.close()


def test_a_link_is_no_faster_than_the_hands_at_both_ends(monkeypatch):
    assert speed(monkeypatch, 0.0) > 1e8
    assert 0.9e6 < speed(monkeypatch, 0.5e-6) <= 1e6  # a microsecond a byte, here and there


def test_the_format_is_the_one_that_is_written_down():
    fields = FIELDS.pack(b"sP", 1, 9, 0, 4, 8, 18, int.from_bytes(checksum(b"the head"), "little"))
    assert encode([MESSAGE]) == (
        fields + checksum(fields) + b"the head" + MESSAGE.body + checksum(MESSAGE.body)
    )
    assert envelope(9, 4, b"the head", 18) == fields + checksum(fields)


def test_a_link_that_pauses_leaves_the_rest_for_later():
    """Whoever serves others too does not read for as long as a peer sends."""
    data = encode([MESSAGE] * 50)
    rooms = Rooms(data)
    num_turns = 0
    while len(rooms.said) < 50:
        rooms.link.pause_at_nbytes = rooms.link.num_received_nbytes + 100
        before = rooms.link.num_received_nbytes
        rooms.receive()
        assert rooms.link.num_received_nbytes - before <= 100 + len(WHOLE)
        num_turns += 1
    assert rooms.said == [MESSAGE] * 50
    assert num_turns > len(data) // (100 + len(WHOLE))


# -- what is refused ---------------------------------------------------------------------------


def flip(data, at):
    return data[:at] + bytes([data[at] ^ 0x40]) + data[at + 1 :]


HEAD_AT = ENVELOPE_NBYTES
BODY_AT = HEAD_AT + len(MESSAGE.head)
SUM_AT = BODY_AT + len(MESSAGE.body)
WHOLE = encode([MESSAGE])
WRONG = {
    "another magic": (envelope(magic=b"sQ"), "a message of b'sQ' version 1, not b'sP' 1"),
    "another version": (envelope(version=2), "a message of b'sP' version 2, not b'sP' 1"),
    "a head over the limit": (envelope(head_nbytes=HEAD_LIMIT_NBYTES + 1), "a head of 1073741825"),
    "an envelope's length": (flip(WHOLE, 12), "an envelope whose checksum"),
    "an envelope's checksum": (flip(WHOLE, HEAD_AT - 1), "an envelope whose checksum"),
    "the sum of a head": (signed(flip(WHOLE, 28)[: FIELDS.size]) + WHOLE[HEAD_AT:], "a head whose"),
    "a head": (flip(WHOLE, HEAD_AT), "a head whose checksum"),
    "the sum of no head": (signed(flip(envelope(), 28)[: FIELDS.size]), "a head whose checksum"),
    "the first byte of a body": (flip(WHOLE, BODY_AT), "a body whose checksum"),
    "the last byte of a body": (flip(WHOLE, SUM_AT - 1), "a body whose checksum"),
    "a body's checksum": (flip(WHOLE, SUM_AT), "a body whose checksum"),
    "no stream of ours": (b"GET / HTTP/1.1\r\nHost: trainer\r\nAccept: */*\r\n\r\n", "an envelope"),
}  # fmt: skip


@pytest.mark.parametrize("what", WRONG)
def test_what_is_wrong_is_garbled_and_stays_so(what):
    data, why = WRONG[what]
    rooms = Rooms(encode([AFTER]) + data + encode([AFTER]))
    with pytest.raises(Garbled, match=why):
        rooms.receive()
    assert rooms.said == [AFTER]
    with pytest.raises(Garbled, match=why):
        rooms.receive()
    assert rooms.said == [AFTER], "nothing is found again behind it"
    assert decode(encode([AFTER]) + data) == ([AFTER], GARBLED)


@pytest.mark.parametrize("nbytes", range(len(WHOLE)))
def test_a_stream_that_ends_in_a_message_is_a_lost_connection(nbytes):
    rooms = Rooms(encode([AFTER]) + WHOLE[:nbytes], does_end=True)
    with pytest.raises(ConnectionLost, match="end of stream") as caught:
        rooms.receive()
    assert not isinstance(caught.value, Garbled)
    assert rooms.said == [AFTER]


def test_a_socket_that_fails_is_a_lost_connection_that_says_how():
    class Broken(Source):
        def recv_into(self, view):
            raise ConnectionResetError("reset by peer")

    with pytest.raises(ConnectionLost, match="reset by peer"):
        Link(Broken(b"")).receive_nowait()


@pytest.mark.parametrize("nbytes", [1 << 40, (1 << 63) - 1, 1 << 63, (1 << 64) - 1])
def test_a_body_of_any_claimed_length_costs_no_memory_before_it_comes(nbytes):
    rooms = Rooms(envelope(lane=1, body_nbytes=nbytes) + b"some of it", unwanted=[1])
    assert rooms.receive() == []
    rooms.link.drop_body(1)
    assert rooms.receive() == []


# -- any messages, in any pieces ---------------------------------------------------------------

messages = st.builds(
    Said,
    kind=st.integers(0, 65535),
    lane=st.integers(0, 2**32 - 1),
    head=st.binary(max_size=60),
    body=st.binary(max_size=200),
)


@settings(max_examples=300, deadline=None)
@given(
    said=st.lists(messages, max_size=6),
    out=st.lists(st.integers(0, 90), min_size=1, max_size=6).filter(any),
    cuts=st.lists(st.integers(1, 90), min_size=1, max_size=20),
)
@example(said=[MESSAGE, AFTER] * 2, out=[1, 0], cuts=[1])
def test_any_messages_in_any_pieces_come_whole_and_in_order(said, out, cuts):
    sink = Sink(out)
    link = Link(sink)
    for message in said:
        link.send(message.kind, message.lane, message.head, [message.body[:9], message.body[9:]])
    while link.has_unsent:
        link.flush()
    data = bytes(sink.data)
    source = Source(b"")
    rooms = Rooms(b"")
    rooms.link._socket = source
    num_seen = 0
    while num_seen < len(data):
        num_seen += cuts[num_seen % len(cuts)]
        source._data = data[:num_seen]
        rooms.receive()
        assert rooms.said == decode(data[:num_seen])[0], "each is shown as soon as it is whole"
    assert rooms.said == said
    assert rooms.link.num_received_nbytes == len(data)
