"""What is made ahead for a loader without workers: the decisions, without a process."""

import dataclasses

import pytest

from stoker.errors import BrokenGuarantee
from stoker.scheduler.events import Arrived, Ask, Closed, Drawn, GiveUp, Lost, Refused, Restarted
from stoker.spare.ahead import Ahead
from stoker.spare.evidence import MIN_SAVED_S, Evidence

GOOD = Evidence(
    fetch_s=0.1, step_s=0.1, look_s=0.001, has_moved=False, may_run_ahead=True,
    samples_draw=False, loop_draws=True, num_left=100, num_slots=8, num_cores=2,
)  # fmt: skip


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({}, ""),
        ({"samples_draw": True, "loop_draws": False}, ""),
        ({"has_moved": True}, "its state moves"),
        ({"look_s": 0.006}, "too large to watch"),
        ({"may_run_ahead": False}, "sampler"),
        ({"samples_draw": True}, "and so does the training loop"),
        ({"num_cores": 1}, "nothing to gain"),
        ({"samples_draw": True, "loop_draws": False, "step_s": 0.001}, "nothing to gain"),
        ({"num_left": int(MIN_SAVED_S / 0.1) - 1}, "too little"),
    ],
)
def test_others_make_batches_only_where_nobody_can_tell_and_it_gains(change, why):
    told = dataclasses.replace(GOOD, **change).why_here()
    assert (why in told) if why else (told == "")


def test_as_many_processes_as_keep_up_with_the_loop():
    assert GOOD.num_workers == 1
    assert dataclasses.replace(GOOD, step_s=0.03).num_workers == 4
    assert dataclasses.replace(GOOD, step_s=0.0).num_workers == 8
    assert dataclasses.replace(GOOD, step_s=0.0, samples_draw=True).num_workers == 1


def begun(num_slots=2):
    state = Ahead(num_slots=num_slots)
    asks = []
    while state.wants_index:
        asks += state.step(Drawn(b"body"))
    return state, asks


def given_up(actions):
    return [action.task.id for action in actions if isinstance(action, GiveUp)]


def take_all(state):
    return [left[0] for left in iter(state.reorder.take, None)]


def test_tasks_go_to_whoever_has_least_to_do():
    state, asks = begun()
    assert [(ask.slot, ask.task.id) for ask in asks] == [(0, 0), (1, 1), (0, 2), (1, 3), (0, 4)]
    assert all(isinstance(ask, Ask) and ask.free for ask in asks)
    assert state.next_slot == 0
    state.step(Arrived(1, 1, "b"))
    state.step(Arrived(0, 0, "a"))
    assert take_all(state) == [0, 1]
    assert [ask.slot for ask in state.step(Drawn(b"body"))] == [1]


def test_a_refused_task_and_all_later_ones_are_given_up_and_earlier_ones_are_good():
    state, _ = begun()
    state.step(Arrived(1, 3, "later"))
    assert given_up(state.step(Refused(1, 1, "it prints"))) == [1, 2, 3, 4]
    assert not state.wants_index
    assert state.step(Arrived(0, 2, "late news")) == []
    state.step(Arrived(0, 0, "good"))
    assert state.reorder.take() == (0, "good")
    assert given_up(state.step(Drawn(b"body"))) == [5]


def test_an_earlier_surprise_after_a_later_one():
    state, _ = begun()
    assert given_up(state.step(Refused(1, 3, "it prints"))) == [3, 4]
    assert given_up(state.step(Refused(0, 0, "it draws"))) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("num_answered", [0, 1, 3])
def test_a_death_gives_up_what_the_process_owed_and_all_after_it(num_answered):
    state, _ = begun()
    for task_id in (0, 2, 4)[:num_answered]:
        state.step(Arrived(0, task_id, "batch"))
    first = (0, 2, 4, 5)[num_answered]
    assert given_up(state.step(Lost(0, "killed"))) == list(range(first, 5))
    assert state.num_lost == 1
    assert given_up(state.step(Drawn(b"body"))) == [5]


def test_a_wrong_guess_is_forgotten_wherever_it_is():
    state, _ = begun(num_slots=1)
    state.step(Arrived(0, 0, "wrong"))
    state.forget()
    assert state.wants_index and state.reorder.take() is None
    assert state.step(Arrived(0, 1, "late and wrong")) == []
    assert state.step(Refused(0, 2, "of no interest")) == []
    (ask,) = state.step(Drawn(b"anew"))
    state.step(Arrived(0, ask.task.id, "right"))
    assert state.reorder.take() == (ask.task.id, "right")


def test_what_cannot_be_is_our_bug_and_late_news_is_none():
    state, _ = begun()
    with pytest.raises(BrokenGuarantee, match="Restarted"):
        state.step(Restarted())
    state.step(Closed())
    assert state.step(Lost(0, "killed")) == []
