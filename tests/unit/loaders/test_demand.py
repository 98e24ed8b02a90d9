"""How many hosts are asked for, without a clock."""

from stoker.loaders.driver.demand import SHRINK_AFTER_S, Demand

MANY = 10**9


def heard(demand, work_s, step_s, now_s, num_local=0, limit=MANY):
    changed = demand.heard(work_s, step_s, num_local, limit, now_s)
    return demand.num_asked if changed else None


def test_as_many_as_keep_up_and_a_fifth_more_at_once():
    demand = Demand(1, 64)
    assert demand.num_asked == 1
    assert heard(demand, 1.0, 0.1, 0.0) == 12
    assert heard(demand, 1.0, 0.1, 1.0) is None
    assert heard(demand, 1.0, 0.05, 2.0) == 24


def test_this_machines_own_workers_and_the_bounds_count():
    assert heard(Demand(1, 64), 1.0, 0.1, 0.0, num_local=3) == 9
    assert heard(Demand(1, 8), 1.0, 0.1, 0.0) == 8
    assert heard(Demand(1, 64), 1.0, 0.1, 0.0, limit=4, num_local=1) == 3
    assert heard(Demand(0, 64), 0.0, 0.1, 0.0) is None
    assert heard(Demand(6, 64), 0.1, 0.1, 0.0) is None


def test_a_loop_that_takes_no_time_wants_all_there_are():
    assert heard(Demand(1, 64), 1.0, 0.0, 0.0) == 64


def test_fewer_only_after_a_while_in_which_fewer_would_have_done():
    demand = Demand(1, 64)
    heard(demand, 1.0, 0.1, 0.0)
    assert heard(demand, 0.2, 0.1, 1.0) is None
    assert heard(demand, 0.4, 0.1, 10.0) is None  # the most of that while
    assert heard(demand, 0.1, 0.1, 0.9 + SHRINK_AFTER_S) is None
    assert heard(demand, 0.1, 0.1, 1.0 + SHRINK_AFTER_S) == 5
    assert heard(demand, 0.1, 0.1, 2.0 + SHRINK_AFTER_S) is None
    assert heard(demand, 0.1, 0.1, 3.0 + 2 * SHRINK_AFTER_S) == 2


def test_a_validation_in_between_gives_nothing_back():
    demand = Demand(1, 64)
    heard(demand, 1.0, 0.1, 0.0)
    for epoch in range(10):
        assert heard(demand, 0.1, 0.1, 100.0 * epoch + 1.0) is None
        assert heard(demand, 1.0, 0.1, 100.0 * epoch + SHRINK_AFTER_S) is None


def test_what_would_change_little_is_left():
    demand = Demand(1, 64)
    heard(demand, 1.0, 0.1, 0.0)
    assert heard(demand, 0.9, 0.1, 1.0) is None
    assert heard(demand, 0.9, 0.1, 1.0 + 2 * SHRINK_AFTER_S) is None
