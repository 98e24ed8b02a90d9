"""Batches leave in order, once."""

from hypothesis import given
from hypothesis import strategies as st

from stoker.scheduler.tasks.reorder import Reorder


def take_all(reorder):
    taken = []
    while (left := reorder.take()) is not None:
        taken.append(left)
    return taken


@given(st.permutations(range(8)), st.integers(0, 5))
def test_whatever_the_order_of_arrival_batches_leave_in_order(arrivals, first):
    reorder = Reorder(first)
    left = []
    for number in arrivals:
        assert reorder.hold(first + number, f"batch {number}")
        left += take_all(reorder)
    assert left == [(first + number, f"batch {number}") for number in range(8)]
    assert (reorder.num_held, reorder.num_left_early, reorder.next_id) == (0, 0, first + 8)


@given(st.permutations(range(8)))
def test_out_of_order_batches_leave_as_they_arrive(arrivals):
    reorder = Reorder(0, in_order=False)
    left = []
    for number in arrivals:
        reorder.hold(number, None)
        left += [task_id for task_id, _ in take_all(reorder)]
    assert left == list(arrivals)
    assert (reorder.next_id, reorder.num_left_early) == (8, 0)


@given(st.lists(st.integers(0, 6)), st.booleans())
def test_a_batch_that_comes_again_is_dropped(arrivals, in_order):
    reorder = Reorder(0, in_order)
    seen, left = set(), []
    for number in arrivals:
        assert reorder.hold(number, None) == (number not in seen)
        seen.add(number)
        left += take_all(reorder)
    assert len(left) == len(dict(left))


def test_what_is_held_is_counted():
    reorder = Reorder(0)
    reorder.hold(2, "c")
    reorder.hold(1, "b")
    assert reorder.num_held == 2
    assert reorder.take() is None


def test_none_is_a_batch_like_any_other():
    reorder = Reorder(0)
    reorder.hold(0, None)
    assert reorder.take() == (0, None)


def test_a_batch_that_was_dropped_may_come_again():
    reorder = Reorder(0)
    reorder.hold(1, "stale")
    reorder.drop(1)
    reorder.drop(5)
    assert reorder.num_held == 0
    assert reorder.hold(1, "fresh")
    reorder.hold(0, "first")
    assert take_all(reorder) == [(0, "first"), (1, "fresh")]


def test_what_will_never_come_is_not_waited_for():
    reorder = Reorder(0)
    reorder.hold(3, "d")
    reorder.skip(1)
    reorder.skip(2)
    assert reorder.take() is None
    reorder.hold(0, "a")
    assert take_all(reorder) == [(0, "a"), (3, "d")]
    reorder.skip(0)  # long gone
    reorder.skip(4)
    assert reorder.next_id == 5
