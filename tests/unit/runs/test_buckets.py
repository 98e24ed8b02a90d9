"""Spans, step times and slowest steps add up to what the looks say, whatever their order and number."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.runs.buckets import NUM_SLOWEST, Buckets, Look, Why, bin_of, bounds_of, long_at

BEGAN_S = 1000.0
DAY_S = 24 * 3600


def looks_of(steps, number=0):
    """steps: (seconds from the last look on, batches, waited, busy)."""
    at_s, num, wait_s, busy_s = BEGAN_S, 0, 0.0, 0.0
    for later_s, batches, waited_s, was_busy_s in steps:
        at_s, num = at_s + later_s, num + batches
        wait_s, busy_s = wait_s + waited_s, busy_s + was_busy_s
        yield Look(at_s, number, num, 4 * num, wait_s, busy_s)


def added(looks):
    buckets = Buckets(BEGAN_S)
    spans = [span for look in looks for span in buckets.add(look)]
    return buckets, [*spans, *buckets.rest()]


SECONDS = st.floats(0, 1000)
STEPS = st.lists(st.tuples(SECONDS, st.integers(0, 5), SECONDS, SECONDS), max_size=40)


@given(STEPS, STEPS)
def test_nothing_is_lost_or_counted_twice(first, second):
    looks = sorted([*looks_of(first), *looks_of(second, number=1)])
    buckets, spans = added(looks)
    for number, steps in enumerate((first, second)):
        rows = [row for span in spans for row in span.rows if row.number == number]
        num = sum(step[1] for step in steps)
        assert (sum(r.num_batches for r in rows), sum(r.num_samples for r in rows)) == (
            num,
            4 * num,
        )
        assert math.isclose(sum(r.wait_s for r in rows), sum(s[2] for s in steps), abs_tol=1e-6)
        assert math.isclose(sum(r.busy_s for r in rows), sum(s[3] for s in steps), abs_tol=1e-6)
    assert sum(buckets.histogram.values()) == sum(step[1] for step in [*first, *second])
    begins = [span.at_s for span in spans]
    assert begins == sorted(set(begins))


def test_a_day_has_few_spans():
    _, spans = added(looks_of([(1.0, 50, 0.5, 0.5)] * DAY_S))
    assert 2_500 < len(spans) < 3_000
    assert sum(row.num_batches for span in spans for row in span.rows) == 50 * DAY_S
    assert [span.long_s for span in spans] == sorted(span.long_s for span in spans)


def test_a_span_without_a_look_is_none():
    _, spans = added(looks_of([(0.5, 1, 0.1, 0.1), (7.2, 1, 7.0, 0.1)]))
    assert [span.at_s for span in spans] == [0.0, 7.0]
    assert [row.longest_s for span in spans for row in span.rows] == pytest.approx([0.2, 7.1])


def test_spans_grow_with_the_run():
    assert [long_at(run_s) for run_s in (0, 599, 600, 10_799, 10_800, 1e9)] == [
        1,
        1,
        10,
        10,
        60,
        60,
    ]


@given(st.lists(st.floats(1e-5, 1e4), min_size=1, max_size=100))
def test_the_slowest_steps_are_kept_with_their_numbers(steps_s):
    buckets, _ = added(looks_of([(s, 1, s / 2, s / 2) for s in steps_s]))
    found = buckets.slowest()
    wanted = sorted(steps_s, reverse=True)[:NUM_SLOWEST]
    assert [slow.step_s for slow in found] == pytest.approx(wanted, rel=1e-6)
    assert [steps_s[slow.batch - 1] for slow in found] == pytest.approx(wanted, rel=1e-6)


@given(st.floats(1e-6, 1e5))
def test_a_step_lies_in_its_bin(step_s):
    low_s, high_s = bounds_of(bin_of(step_s))
    assert low_s * (1 - 1e-9) <= step_s <= high_s * (1 + 1e-9)
    assert high_s / low_s == pytest.approx(2 ** (1 / 4))


def test_no_time_at_all_is_a_microsecond():
    assert bin_of(0.0) == bin_of(1e-6)


def test_a_slow_step_says_why_its_batch_took_long():
    buckets = Buckets(0.0)
    for num, at_s in ((1, 1.0), (2, 5.0), (6, 6.0)):
        buckets.add(Look(at_s, 0, num, num, at_s, 0.0))
    whys = [Why(0, 2, "the second"), Why(0, 4, "of a group"), Why(1, 1, "another loader's")]
    found = {slow.batch: (slow.num, slow.why) for slow in buckets.slowest(whys)}
    assert found == {1: (1, ""), 2: (1, "the second"), 6: (4, "of a group")}
