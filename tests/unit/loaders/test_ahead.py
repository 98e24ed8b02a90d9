"""What is made ahead for a loader without workers: the decisions, without a process."""

import dataclasses

import pytest

from stoker.errors import BrokenGuarantee
from stoker.loaders.in_process.ahead import Ahead
from stoker.loaders.in_process.evidence import MIN_SAVED_S, Evidence
from stoker.scheduler.events import (
    Ask,
    Bounded,
    Closed,
    Drawn,
    FreeArrived,
    GiveUp,
    Kill,
    Late,
    Lost,
    NotIndependent,
    Offered,
    Restarted,
    Start,
)
from tests.slots import E, R

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
        ({"look_s": 0.006}, ""),
        ({"look_s": 0.03}, "too large to watch"),
        (
            {"look_s": 0.02, "step_s": 0.005, "samples_draw": True, "loop_draws": False},
            "nothing to gain",
        ),
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
    assert [(ask.slot, ask.task.id) for ask in asks] == [(E[k % 2], k) for k in range(5)]
    assert all(isinstance(ask, Ask) and ask.free for ask in asks)
    assert state.next_slot == E[0]
    state.step(FreeArrived(E[1], 1, "b"))
    state.step(FreeArrived(E[0], 0, "a"))
    assert take_all(state) == [0, 1]
    assert [ask.slot for ask in state.step(Drawn(b"body"))] == [E[1]]


def test_a_refused_task_and_all_later_ones_are_given_up_and_earlier_ones_are_good():
    state, _ = begun()
    state.step(FreeArrived(E[1], 3, "later"))
    assert given_up(state.step(NotIndependent(E[1], 1, "it prints"))) == [1, 2, 3, 4]
    assert not state.wants_index
    assert state.step(FreeArrived(E[0], 2, "late news")) == []
    state.step(FreeArrived(E[0], 0, "good"))
    assert state.reorder.take() == (0, "good")
    assert given_up(state.step(Drawn(b"body"))) == [5]


def test_an_earlier_surprise_after_a_later_one():
    state, _ = begun()
    assert given_up(state.step(NotIndependent(E[1], 3, "it prints"))) == [3, 4]
    assert given_up(state.step(NotIndependent(E[0], 0, "it draws"))) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("num_answered", [0, 1, 3])
def test_a_death_gives_up_what_the_process_owed_and_all_after_it(num_answered):
    state, _ = begun()
    for task_id in (0, 2, 4)[:num_answered]:
        state.step(FreeArrived(E[0], task_id, "batch"))
    first = (0, 2, 4, 5)[num_answered]
    assert given_up(state.step(Lost(E[0], "killed"))) == list(range(first, 5))
    assert state.num_lost == 1
    assert given_up(state.step(Drawn(b"body"))) == [5]


def test_a_wrong_guess_is_forgotten_wherever_it_is():
    state, _ = begun(num_slots=1)
    state.step(FreeArrived(E[0], 0, "wrong"))
    state.forget()
    assert state.wants_index and state.reorder.take() is None
    assert state.step(FreeArrived(E[0], 1, "late and wrong")) == []
    assert state.step(NotIndependent(E[0], 2, "of no interest")) == []
    (ask,) = state.step(Drawn(b"anew"))
    state.step(FreeArrived(E[0], ask.task.id, "right"))
    assert state.reorder.take() == (ask.task.id, "right")


def test_what_cannot_be_is_our_bug_and_late_news_is_none():
    state, _ = begun()
    with pytest.raises(BrokenGuarantee, match="Restarted"):
        state.step(Restarted())
    state.step(Closed())
    assert state.step(Lost(E[0], "killed")) == []


# -- other machines -------------------------------------------------------------------------------


def asked(actions):
    return [(action.slot, action.task.id) for action in actions if isinstance(action, Ask)]


def helped(capacity=2, num_local=2, **how):
    """Two workers here, and some elsewhere: everything is asked for."""
    state = Ahead(num_slots=2, **how)
    started = state.step(Offered(capacity, num_local, b"same"))
    assert started == [Start(R[k], away=True) for k in range(capacity)]
    asks = []
    while state.wants_index:
        asks += state.step(Drawn(b"body"))
    return state, dict(map(reversed, asked(asks)))


def test_other_machines_make_them_too_and_leave_the_loop_its_core():
    assert set(helped()[1].values()) == {*E[:2], *R[:2]}
    assert set(helped(num_local=0)[1].values()) == {*R[:2]}
    assert Ahead(num_slots=1, is_sequence=True).step(Offered(2, 1, b"same")) == []


def test_no_more_is_ahead_than_memory_has_room_for():
    state, _ = helped(capacity=9)
    state.step(Bounded(max_held=7))
    for task_id in range(20):
        state.reorder.hold(task_id, "batch")
    take_all(state)
    while state.wants_index:
        state.step(Drawn(b"body"))
    assert state._next_id - state.reorder.next_id == 7


def test_what_a_lost_machine_owed_is_asked_again_and_the_next_machine_is_used():
    state, slot_of = helped()
    again = asked(state.step(Lost(R[0], None)))
    assert [task_id for _, task_id in again] == [k for k, slot in slot_of.items() if slot == R[0]]
    assert R[0] not in {slot for slot, _ in again}
    assert state.step(Offered(1, 2, b"same")) == []
    assert state.step(Offered(2, 2, b"same")) == [Start(R[0], away=True)]


@pytest.mark.parametrize(
    "surprise", [NotIndependent(R[0], 0, "it raises FileNotFoundError"), Lost(R[0], "exit 1")]
)
def test_a_surprise_elsewhere_keeps_the_batches_here(surprise):
    state, slot_of = helped(num_local=0)
    actions = state.step(surprise)
    assert Kill(R[1]) in actions and given_up(actions) == []
    assert sorted(task for _, task in asked(actions)) == list(slot_of)
    assert {slot for slot, _ in asked(actions)} == {*E[:2]}
    assert state.step(Offered(5, 2, b"same")) == []
    assert state.why_not_away


def test_workers_that_share_a_place_go_where_there_is_another():
    state, slot_of = helped()
    actions = state.step(Offered(2, 2, b"same", (R[1],)))
    assert Kill(R[1]) in actions and Start(R[1], away=True) in actions
    assert {task for _, task in asked(actions)} == {
        k for k, slot in slot_of.items() if slot == R[1]
    }


def test_a_late_batch_is_asked_of_a_second_worker_once():
    state, slot_of = helped(may_hedge=True)
    ((slot, task_id),) = asked(state.step(Late(slot_of[0], 0, 1.0, 1.0)))
    assert (task_id, slot != slot_of[0]) == (0, True)
    assert state.step(Late(slot_of[0], 0, 2.0, 1.0)) == []
    state.step(FreeArrived(slot, 0, "first"))
    state.step(FreeArrived(slot_of[0], 0, "second"))
    assert state.reorder.take() == (0, "first")
    assert helped()[0].step(Late(slot_of[0], 0, 1.0, 1.0)) == []


def test_when_nobody_is_left_the_trainer_makes_them():
    state, slot_of = helped(num_local=0)
    for slot in E[:2]:
        assert given_up(state.step(Lost(slot, "killed"))) == []
    assert given_up(state.step(Lost(R[0], None))) == []
    assert given_up(state.step(Lost(R[1], None))) == list(slot_of)
