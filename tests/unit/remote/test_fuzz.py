"""A million messages changed on their way: each gives what was sent before it, or nothing.

Every case is a stream of a few messages with one change in it, read by a Link and, for comparison,
by the format's description (streams.decode). A failure names its seed: `replay(seed)` runs it again.
"""

import pickle
import random
import tracemalloc
from pathlib import Path
from typing import NamedTuple

import pytest

from stoker.remote.net.link import HEAD_LIMIT_NBYTES, Garbled, Link
from stoker.wire.channel import ConnectionLost
from tests.unit.remote.streams import (
    END,
    ENVELOPE_NBYTES,
    FIELDS,
    GARBLED,
    MORE,
    Said,
    Source,
    decode,
    encode,
    signed,
)

NUM_CASES = 1_000_000
NUM_CASES_A_SEED = 1000
NUM_STREAMS = 200
WANTED_NBYTES = 4096  # room is made for bodies up to this
GROWTH_NBYTES = 4 << 20


class Stream(NamedTuple):
    """parts: where each envelope, head, body and checksum lies, for each message."""

    data: bytes
    parts: tuple[tuple[slice, ...], ...]


def make_stream(rng):
    said = [
        Said(
            rng.choice((0, 1, 2, 3, 9, 9, 9, 12)),
            rng.choice((0, 1, 2, rng.getrandbits(32))),
            rng.randbytes(rng.choice((0, 1, 8, 8, 40, 200))),
            rng.randbytes(rng.choice((0, 0, 1, 16, 16, 300))),
        )
        for _ in range(rng.choice((1, 1, 1, 2, 2, 3)))
    ]
    parts, at = [], 0
    for message in said:
        lengths = [ENVELOPE_NBYTES, len(message.head)]
        lengths += [len(message.body), 8] if message.body else []
        places = []
        for nbytes in lengths:
            places.append(slice(at, at + nbytes))
            at += nbytes
        parts.append(tuple(places))
    return said, Stream(encode(said), tuple(parts))


MADE = [make_stream(random.Random(seed)) for seed in range(NUM_STREAMS)]
STREAMS = [stream for _, stream in MADE]
ENVELOPES = {(m.kind, m.lane, m.head) for said, _ in MADE for m in said}
BODIES = {m.body for said, _ in MADE for m in said} | {b""}


# -- changes: of a stream's bytes, by a generator of random numbers --------------------------------


def flip_bits(rng, stream):
    data = bytearray(stream.data)
    for _ in range(rng.choice((1, 1, 2, 5))):
        data[int(rng.random() * len(data))] ^= 1 << int(rng.random() * 8)
    return bytes(data)


def set_bytes(rng, stream):
    data = bytearray(stream.data)
    at = int(rng.random() * len(data))
    nbytes = rng.choice((1, 2, 4, 8))
    data[at : at + nbytes] = rng.choice((b"\0", b"\xff", b"\x80", b"\x7f")) * nbytes
    return bytes(data)


def truncate(rng, stream):
    return stream.data[: int(rng.random() * len(stream.data))]


def cut_out(rng, stream):
    at = int(rng.random() * len(stream.data))
    return stream.data[:at] + stream.data[at + 1 + int(rng.random() * 50) :]


def splice(rng, stream):
    """Bytes of another stream, put in or over what was there."""
    other = rng.choice(STREAMS).data
    start, at = int(rng.random() * len(other)), int(rng.random() * len(stream.data))
    piece = other[start : start + 1 + int(rng.random() * 100)]
    return stream.data[:at] + piece + stream.data[at + rng.choice((0, len(piece))) :]


def swap_parts(rng, stream):
    """Two parts of two messages, of this stream and another, each in the other's place."""
    other = rng.choice(STREAMS)
    ours, theirs = rng.choice(stream.parts), rng.choice(other.parts)
    first = int(rng.random() * min(len(ours), len(theirs)))
    one, two = ours[first], theirs[first]
    if rng.random() < 0.3:  # all that comes after, too: a body with its checksum
        one, two = slice(one.start, ours[-1].stop), slice(two.start, theirs[-1].stop)
    return stream.data[: one.start] + other.data[two] + stream.data[one.stop :]


def repeat(rng, stream):
    one = rng.choice(rng.choice(stream.parts))
    return stream.data[: one.stop] + stream.data[one] + stream.data[one.stop :]


LENGTHS = (0, 1, 7, 8, 40, 1 << 16, 1 << 30, (1 << 30) + 1, 1 << 31, (1 << 32) - 1)
LONG_LENGTHS = (*LENGTHS, 1 << 32, 1 << 40, (1 << 63) - 1, 1 << 63, (1 << 64) - 8, (1 << 64) - 1)


def set_field(rng, stream):
    """An extreme length or another version, under a checksum that no longer fits."""
    return _with_field(rng, stream, LENGTHS, bytes)


def forge_field(rng, stream):
    """The same under a checksum that fits: what only a peer that means it would send.

    Heads that a Link would believe, and get memory for, are small here.
    """
    believed = tuple(n for n in LENGTHS if n <= 1 << 16 or n > HEAD_LIMIT_NBYTES)
    return _with_field(rng, stream, believed, lambda fields: signed(bytes(fields)))


def _with_field(rng, stream, head_lengths, finish):
    at = rng.choice(stream.parts)[0].start
    fields = bytearray(stream.data[at : at + FIELDS.size])
    which = rng.random()
    if which < 0.4:
        fields[12:16] = rng.choice(head_lengths).to_bytes(4, "little")
    elif which < 0.8:
        fields[16:24] = rng.choice(LONG_LENGTHS).to_bytes(8, "little")
    else:
        fields[:4] = rng.choice((b"sP\0\0", b"sP\2\0", b"sP\xff\xff", b"sp\1\0", b"Ps\1\0"))
    new = finish(fields)
    return stream.data[:at] + new + stream.data[at + len(new) :]


CHANGES = (
    flip_bits, flip_bits, set_bytes, truncate, cut_out, splice, swap_parts, repeat, set_field,
    forge_field,
)  # fmt: skip


# -- the cases -----------------------------------------------------------------------------------


def room(message):
    if message.body_nbytes > WANTED_NBYTES:
        return None
    body = memoryview(bytearray(message.body_nbytes))
    BODY_OF[id(message.head)] = body
    third = len(body) // 3
    return [body[:third], body[third:]]


BODY_OF = {}  # by the head it came with


def read(data, piece_nbytes, does_end):
    """What a Link makes of it, and how it stopped."""
    link = Link(Source(data, piece_nbytes, does_end), room)
    said = []
    BODY_OF.clear()
    try:
        while (message := link.receive_nowait()) is not None:
            body = bytes(BODY_OF.pop(id(message.head))) if message.body_nbytes else b""
            said.append(Said(message.kind, message.lane, bytes(message.head), body))
    except Garbled:
        return said, GARBLED
    except ConnectionLost:
        return said, END
    return said, MORE


def check(rng):
    """One case. Returns how it ended, and how many messages had come."""
    change = rng.choice(CHANGES)
    stream = rng.choice(STREAMS)
    data = change(rng, stream)
    piece_nbytes = 1 << 30 if rng.random() < 0.9 else 1 + int(rng.random() * 40)
    does_end = rng.random() < 0.5
    try:
        said, how = read(data, piece_nbytes, does_end)
    except Exception as error:
        raise AssertionError(f"{change.__name__}: {data.hex()}") from error
    expected, why = decode(data)
    if why == MORE and does_end:
        why = END
    assert (said, how) == (expected, why), f"{change.__name__}: {data.hex()}"
    if change is not forge_field:
        for message in said:
            assert message[:3] in ENVELOPES and message.body in BODIES, "nobody sent this"
    if change is truncate:
        assert said == decode(stream.data)[0][: len(said)]
    return how, len(said)


def replay(seed, num_cases=NUM_CASES_A_SEED):
    """The cases of one seed; how often each end was met, and how many messages came."""
    rng = random.Random(seed)
    met = {MORE: 0, GARBLED: 0, END: 0}
    num_said = 0
    for number in range(num_cases):
        try:
            how, num = check(rng)
        except AssertionError as error:
            error.add_note(f"seed {seed}, case {number}")
            raise
        met[how] += 1
        num_said += num
    return met, num_said


@pytest.fixture
def nothing_is_unpickled(monkeypatch):
    def refuse(*args, **kwargs):
        pytest.fail("something was unpickled")

    for name in ("load", "loads", "Unpickler"):
        monkeypatch.setattr(pickle, name, refuse)


def peak_nbytes():
    """Most memory that this process had since `forget_peak`. Source: proc(5), VmHWM."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM"))


def forget_peak():
    Path("/proc/self/clear_refs").write_text("5")


@pytest.mark.usefixtures("nothing_is_unpickled")
@pytest.mark.parametrize(
    "num_cases", [NUM_CASES // 50, pytest.param(NUM_CASES, marks=pytest.mark.full)]
)
def test_changed_messages_give_what_was_sent_or_nothing(num_cases):
    replay(0)
    forget_peak()
    before_nbytes = peak_nbytes()
    total = {MORE: 0, GARBLED: 0, END: 0}
    num_said = 0
    for seed in range(num_cases // NUM_CASES_A_SEED):
        met, num = replay(seed)
        num_said += num
        for how in total:
            total[how] += met[how]
    assert sum(total.values()) == num_cases
    assert total[GARBLED] > num_cases // 4, total
    assert min(total.values()) > num_cases // 20, total
    assert num_said > num_cases // 4, "what came before the change was seen"
    assert peak_nbytes() - before_nbytes < GROWTH_NBYTES


@pytest.mark.usefixtures("nothing_is_unpickled")
def test_no_changed_message_makes_a_link_hold_memory():
    """Every allocation counted, for some seeds that the million does not have."""
    replay(0, 100)
    tracemalloc.start()
    try:
        for seed in range(NUM_CASES, NUM_CASES + 5):
            replay(seed, 500)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < GROWTH_NBYTES


def test_every_change_changes_something_and_the_same_each_time():
    for change in set(CHANGES):
        made = [[change(random.Random(seed), stream) for seed in (1, 2)] for stream in STREAMS]
        again = [[change(random.Random(seed), stream) for seed in (1, 2)] for stream in STREAMS]
        assert made == again
        same = [stream.data in both for stream, both in zip(STREAMS, made, strict=True)]
        assert sum(same) < NUM_STREAMS // 2, change.__name__
