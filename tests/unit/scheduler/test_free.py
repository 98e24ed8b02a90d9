"""Tasks that stand alone: who is asked, and whose answer counts."""

from stoker.scheduler.free import FreeTasks
from stoker.scheduler.tasks.plan import Task


def task(number):
    return Task(number, 0, b"")


def asked(tasks, *numbers, slots):
    return [tasks.ask(task(number), slots) for number in numbers]


def test_who_owes_least_is_asked():
    tasks = FreeTasks([0, 1, 2])
    assert asked(tasks, 0, 1, 2, slots=[0, 1, 2]) == [0, 1, 2]
    assert tasks.answered(1, 1)
    assert asked(tasks, 3, slots=[0, 1, 2]) == [1]


def test_the_first_answer_counts_whoever_gives_it():
    tasks = FreeTasks([0, 1])
    asked(tasks, 0, slots=[0])
    asked(tasks, 0, slots=[1])
    assert tasks.owed(0) == [0, 1]
    assert tasks.answered(1, 0)
    assert not tasks.answered(0, 0)
    assert tasks.owed(0) == []


def test_one_that_hangs_is_asked_for_nothing_more_until_it_answers():
    tasks = FreeTasks([0, 1])
    asked(tasks, 0, slots=[0])
    tasks.late.add(0)
    assert asked(tasks, 0, 1, 2, 3, slots=[0, 1]) == [1, 1, 1, 1]
    tasks.answered(1, 0)
    assert not tasks.answered(0, 0)
    assert asked(tasks, 4, slots=[0, 1]) == [0]


def test_where_all_hang_somebody_is_asked():
    tasks = FreeTasks([0, 1])
    tasks.late |= {0, 1}
    assert asked(tasks, 0, 1, slots=[0, 1]) == [0, 1]


def test_what_a_lost_slot_owed_is_left_to_others_that_owe_it_too():
    tasks = FreeTasks([0, 1])
    asked(tasks, 0, 1, slots=[0])
    asked(tasks, 0, slots=[1])
    assert [each.id for each in tasks.close(0)] == [1]
    assert tasks.owed(0) == [1]


def test_at_the_end_each_owed_task_comes_once_and_what_was_made_apart():
    tasks = FreeTasks([0, 1])
    asked(tasks, 0, 1, 2, slots=[0])
    asked(tasks, 1, slots=[1])
    tasks.answered(0, 2)
    owed, held = tasks.end()
    assert ([each.id for each in owed], [each.id for each in held]) == ([0, 1], [2])
    assert tasks.on == {}
