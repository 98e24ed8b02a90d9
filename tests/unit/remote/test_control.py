"""What trainer, receiver and host tell each other: each message comes back as it was, or raises."""

import json
import typing

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stoker.remote.net.control import TEXT_LIMIT, VERSION, Cause, Ended, Message, decode, encode
from stoker.scheduler.tasks.slot import Role, Slot

KINDS = typing.get_args(Message)
OF_TYPE = {
    int: st.integers(0, 1 << 62),
    int | None: st.none() | st.integers(-64, 1 << 30),
    float: st.floats(0, 1e12),
    bool: st.booleans(),
    str: st.text(max_size=TEXT_LIMIT),
    list[int]: st.lists(st.integers(0, 1 << 62), max_size=24),
    list[str]: st.lists(st.text(max_size=64), max_size=4),
    dict[str, int]: st.dictionaries(st.text(max_size=64), st.integers(0, 1 << 20), max_size=4),
    Slot: st.builds(Slot, st.sampled_from(Role), st.integers(0, 1 << 30)),
    Cause: st.sampled_from(Cause),
}


def of(kind):
    types = typing.get_type_hints(kind)
    return st.tuples(*(OF_TYPE[types[name]] for name in kind._fields)).map(kind._make)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # its first text takes 1 s
@given(st.sampled_from(KINDS).flatmap(of))
def test_a_message_comes_back_as_it_was(message):
    back = decode(encode(message))
    assert back == message and type(back) is type(message)
    if "slot" in message._fields:
        assert isinstance(back.slot.role, Role) and isinstance(back.slot, Slot)


def test_a_reason_of_any_length_fits():
    ended = Ended(1, Slot(Role.CHAIN, 0), 0, 7, None, Cause.LOST, "x" * 10**6)
    assert decode(encode(ended)).why == "x" * TEXT_LIMIT


@pytest.mark.parametrize(
    "said",
    [
        b"", b"{", b"[]", b"3", b'"Beat"', b'{"Beat": 1}', b"\xff\xfe",
        json.dumps([VERSION + 1, "Beat"]).encode(),
        json.dumps([VERSION, "Beat", 1]).encode(),
        json.dumps([VERSION, "Exec", "rm"]).encode(),
        json.dumps([VERSION, "__class__"]).encode(),
        json.dumps([VERSION, ["Beat"]]).encode(),
        json.dumps([VERSION, "Begin", 1]).encode(),
        json.dumps([VERSION, "Begin", 1, [0, 0], 2]).encode(),
        json.dumps([VERSION, "Begin", 1, [99, 0]]).encode(),
        json.dumps([VERSION, "Begin", 1, 7]).encode(),
    ],
)  # fmt: skip
def test_anything_else_raises(said):
    with pytest.raises(ValueError, match="no message of ours"):
        decode(said)


@given(st.binary(max_size=200))
def test_noise_raises_and_nothing_else(said):
    with pytest.raises(ValueError, match="no message of ours"):
        decode(said)
