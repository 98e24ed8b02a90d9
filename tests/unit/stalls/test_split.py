"""Shares that samples tell are taken of the time that was measured."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.stalls.split import WORDS, Seen, Split, split_of

seconds = st.floats(0, 1e6) | st.just(0.0)


@given(seconds, seconds, st.tuples(*[seconds] * 6))
def test_the_parts_are_the_whole(wait_s, busy_s, seen):
    split = split_of(wait_s, busy_s, Seen(*seen))
    assert sum(split) == pytest.approx(wait_s + busy_s, rel=1e-6, abs=1e-9)
    assert all(part_s >= 0 for part_s in split)


def test_shares_are_of_what_was_measured():
    seen = Seen(own_s=0.5, copy_s=1.0, compute_s=2.0, communication_s=0.0, other_s=1.0)
    assert split_of(3.0, 8.0, seen) == Split(2.5, 0.5, 2.0, 0.0, 4.0, 2.0, 0.0)


def test_of_what_nobody_looked_at_only_waiting_is_known():
    assert split_of(3.0, 8.0, Seen()) == Split(3.0, 0.0, 0.0, 0.0, 0.0, 0.0, 8.0)
    assert split_of(1.0, 0.0, Seen(own_s=2.0)) == Split(0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0)


def test_waiting_while_the_device_computes_is_the_models():
    seen = Seen(own_s=1.0, compute_s=1.0, other_s=1.0, hidden_s=2.0)
    assert split_of(5.0, 8.0, seen) == Split(2.0, 1.0, 0.0, 0.0, 6.0, 4.0, 0.0)
    assert split_of(1.0, 0.0, seen) == Split(0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0)


def test_every_part_has_words():
    assert list(WORDS) == list(Split._fields)


def test_what_was_seen_is_added_and_taken_away():
    a, b = Seen(1, 2, 3, 4, 5, 6), Seen(6, 5, 4, 3, 2, 1)
    assert a.plus(b) == Seen(7, 7, 7, 7, 7, 7)
    assert a.plus(b).minus(b) == a
