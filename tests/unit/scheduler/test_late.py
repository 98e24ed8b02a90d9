"""When a batch is later than most, without a clock."""

from stoker.scheduler.late import MIN_KNOWN, MIN_LATE_S, Lateness


def known(took_s):
    """One that has heard of so many batches, each of slot 1."""
    late = Lateness()
    for task_id, each_s in enumerate(took_s):
        late.asked(1, task_id, 0.0)
        late.answered(1, task_id, 0.0, each_s, was_awaited=False)
    return late


def test_nothing_is_late_before_enough_is_known():
    late = known([1.0] * (MIN_KNOWN - 1))
    late.asked(0, 100, 5.0)
    assert late.late_at_s(0, 100) is None
    late.answered(1, 50, 5.0, 1.0, was_awaited=False)
    assert late.late_at_s(0, 100) == 6.0


def test_late_is_later_than_nineteen_of_twenty():
    late = known([0.1] * 94 + [3.0] * 6)
    late.asked(0, 100, 0.0)
    assert late.late_at_s(0, 100) == 3.0
    late = known([0.1] * 96 + [3.0] * 4)
    late.asked(0, 100, 0.0)
    assert late.late_at_s(0, 100) == 0.1


def test_short_tasks_are_not_late_for_what_a_scheduler_does():
    late = known([0.001] * 50)
    late.asked(0, 100, 7.0)
    assert late.late_at_s(0, 100) == 7.0 + MIN_LATE_S


def test_a_task_begins_when_the_one_before_was_answered():
    late = known([1.0] * 50)
    late.asked(0, 100, 0.0)
    late.asked(0, 101, 0.0)
    late.answered(0, 100, 9.0, 1.0, was_awaited=False)
    assert late.late_at_s(0, 101) == 10.0


def test_the_way_counts_where_the_loop_was_waiting():
    late = known([])
    for task_id in range(MIN_KNOWN):
        late.asked(0, task_id, float(task_id))
        late.answered(0, task_id, task_id + 0.5, 0.1, was_awaited=True)
    late.asked(0, 100, 100.0)
    assert late.late_at_s(0, 100) == 100.5


def test_one_that_was_called_late_is_so_again_when_it_is_twice_as_late():
    late = known([1.0] * 50)
    late.asked(0, 100, 0.0)
    assert late.told(0, 100, 1.5) == (1.5, 1.0)
    assert late.late_at_s(0, 100) == 3.0
    late.asked(0, 101, 0.0)
    assert late.late_at_s(0, 101) == 1.0


def test_nobody_waits_for_a_worker_that_is_gone():
    late = known([1.0] * 50)
    late.asked(0, 100, 0.0)
    late.gone(0)
    assert late.late_at_s(0, 100) is None
