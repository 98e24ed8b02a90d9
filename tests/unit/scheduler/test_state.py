"""The stream's decisions as races, without a process."""

from dataclasses import dataclass

import pytest

from stoker.errors import BrokenGuarantee
from stoker.scheduler.decider import Stream
from stoker.scheduler.events import (
    Arrived,
    Ask,
    Closed,
    Drawn,
    FreeArrived,
    GiveUp,
    Kill,
    Late,
    Lost,
    NotIndependent,
    Offered,
    PointTaken,
    Restarted,
    Start,
    WorkerReady,
)
from stoker.scheduler.history import Where
from stoker.scheduler.rules.losses import BEYOND_HELP
from stoker.scheduler.state import Limits, Phase
from stoker.scheduler.tasks.slot import FINGERPRINT
from tests.slots import C, E, R


@dataclass(frozen=True)
class FakePoint:
    """What the state reads of a worker's Point."""

    task_id: int
    fingerprint: bytes = b"same"
    drew: bool = False
    task_s: float = 1.0
    watch_s: float = 0.0


def make(num_chains=2, num_slots=4, prefetch_factor=2, may_hedge=False):
    return Stream(
        num_chains=num_chains,
        prefetch_factor=prefetch_factor,
        num_slots=num_slots,
        may_be_free=True,
        may_hedge=may_hedge,
    )


def fill(stream):
    actions = []
    while stream.wants_index:
        actions += stream.step(Drawn(b""))
    return actions


def take_all(stream):
    actions = []
    while (left := stream.reorder.take()) is not None:
        actions += stream.taken(left[0])
    return actions


def asked(**kwargs):
    """A stream whose chains look alike, and which waits for its extra workers."""
    stream = make(**kwargs)
    fill(stream)
    for chain in range(stream.num_chains):
        stream.step(Arrived(C[chain], chain, "batch"))
        stream.step(PointTaken(chain, FakePoint(chain)))
    assert stream.phase is Phase.ASKED
    return stream


def free(**kwargs):
    """A stream that is FREE: everything asked at home was answered and taken, nothing drawn."""
    stream = asked(**kwargs)
    for slot in stream.local_extras:
        stream.step(WorkerReady(slot, b"same"))
    for task_id in range(stream.num_chains, stream.next_id):
        chain = task_id % stream.num_chains
        stream.step(Arrived(C[chain], task_id, "batch"))
        stream.step(PointTaken(chain, FakePoint(task_id)))
    assert stream.phase is Phase.FREE
    take_all(stream)
    return stream


def home_ids(actions, slot):
    return [a.task.id for a in actions if isinstance(a, Ask) and a.slot == slot and not a.free]


def test_a_refused_task_goes_home_before_the_later_ones_of_its_chain():
    stream = free()
    fill(stream)  # 4..11, of chain 0: 4, 6, 8, 10
    actions = stream.step(NotIndependent(C[0], 4, "drew"))
    assert home_ids(actions, slot=C[0]) == [4, 6]
    assert home_ids(actions, slot=C[1]) == [5, 7]


def test_what_the_last_extra_worker_owed_goes_home_in_its_chains_order():
    stream = free(num_chains=1, num_slots=2)
    asks = fill(stream)
    first_of_extra = min(a.task.id for a in asks if a.slot == E[1])
    stream.step(FreeArrived(C[0], 2, "batch"))
    take_all(stream)
    assert first_of_extra == 3
    assert home_ids(stream.step(Lost(E[1], "killed")), slot=C[0]) == [3, 4]


def test_a_free_chains_worker_that_is_not_restarted_is_asked_for_nothing():
    stream = free()
    living = {*C[:2], *E[2:4]}
    for _ in range(5):
        if C[0] in living:
            living.discard(C[0])
            living |= {a.slot for a in stream.step(Lost(C[0], "killed")) if isinstance(a, Start)}
    assert {a.slot for a in fill(stream) if isinstance(a, Ask)} <= living


def test_a_free_chains_worker_restarts_however_often_it_dies_in_between_tasks():
    stream = free()
    for _ in range(5):
        fill(stream)
        for slot, tasks in stream.free.on.items():
            for task_id in tuple(tasks):
                stream.step(FreeArrived(slot, task_id, "batch"))
        take_all(stream)
        assert Start(C[0], stream.chains[0].point) in stream.step(Lost(C[0], "killed"))


def test_a_chain_whose_state_moves_after_the_extras_were_asked_bars():
    stream = asked(num_slots=3)
    stream.step(Arrived(C[1], 3, "batch"))
    stream.step(PointTaken(1, FakePoint(3, fingerprint=b"other")))
    stream.step(WorkerReady(E[2], b"same"))
    assert stream.phase is Phase.ASKED, "chain 0 has not been seen after its last task"
    stream.step(Arrived(C[0], 2, "batch"))
    stream.step(PointTaken(0, FakePoint(2)))
    assert stream.phase is Phase.BARRED


def test_extras_that_were_asked_are_ended_when_one_of_them_bars():
    stream = asked()
    stream.step(WorkerReady(E[2], b"same"))
    actions = stream.step(WorkerReady(E[3], b"other"))
    assert stream.phase is Phase.BARRED
    assert {a.slot for a in actions if isinstance(a, Kill)} == {E[2], E[3]}


def test_answers_made_without_an_earlier_tasks_mark_are_made_again_at_home():
    stream = free()
    fill(stream)
    stream.step(FreeArrived(E[2], 6, "made where nothing had moved"))
    actions = stream.step(NotIndependent(C[0], 4, "moved"))
    replay = actions[actions.index(Kill(C[0])) :]
    assert home_ids(replay, slot=C[0])[-2:] == [4, 6]
    stream.step(Arrived(C[0], 4, "batch 4"))
    stream.step(Arrived(C[0], 6, "batch 6"))
    stream.step(Arrived(C[1], 5, "batch 5"))
    assert [stream.reorder.take()[1] for _ in range(3)] == ["batch 4", "batch 5", "batch 6"]


def test_what_torch_would_not_have_sent_before_a_break_never_runs_at_home():
    stream = free()
    fill(stream)  # 4..11; torch would have sent 4..7
    stream.step(Restarted())
    actions = stream.step(NotIndependent(E[2], 10, "drew"))
    assert 10 not in home_ids(actions, slot=C[0])
    assert all(a.task.id < 8 for a in actions if isinstance(a, Ask))


def test_an_extra_that_looks_unlike_the_chains_bars_once_the_chains_were_seen():
    stream = asked()
    for slot in E[2:4]:
        stream.step(WorkerReady(slot, b"other"))
    stream.step(Arrived(C[0], 2, "batch"))
    stream.step(PointTaken(0, FakePoint(2)))
    assert stream.phase is Phase.BARRED


def test_a_stream_waits_with_free_tasks_until_the_unwatched_ones_are_covered():
    stream = asked()
    for slot in E[2:4]:
        stream.step(WorkerReady(slot, b"same"))
    stream.step(Arrived(C[0], 2, "batch"))
    stream.step(PointTaken(0, FakePoint(2)))
    assert stream.phase is Phase.ASKED, "task 3 of chain 1 was asked for unwatched"
    stream.step(Arrived(C[1], 3, "batch"))
    stream.step(PointTaken(1, FakePoint(3)))
    assert stream.phase is Phase.FREE


def test_every_task_asked_for_at_home_meanwhile_is_watched():
    stream = asked()
    take_all(stream)
    asks = [a for a in fill(stream) if isinstance(a, Ask)]
    assert asks and all(a.watch and not a.free for a in asks)


def test_a_chain_that_draws_is_never_asked_to_be_free():
    stream = make()
    fill(stream)
    stream.step(Arrived(C[0], 0, "batch"))
    actions = stream.step(PointTaken(0, FakePoint(0, drew=True)))
    assert stream.phase is Phase.BARRED
    assert not any(isinstance(a, Start) for a in actions)


def test_a_job_that_may_not_be_free_starts_nobody():
    stream = Stream(num_chains=1, prefetch_factor=2, num_slots=4)
    fill(stream)
    stream.step(Arrived(C[0], 0, "batch"))
    assert stream.step(PointTaken(0, FakePoint(0))) == []
    assert stream.phase is Phase.HOME


def test_watching_that_costs_too_much_leaves_the_tasks_at_home():
    stream = make()
    fill(stream)
    stream.step(Arrived(C[0], 0, "batch"))
    assert stream.step(PointTaken(0, FakePoint(0, task_s=0.001, watch_s=0.001))) == []
    assert stream.phase is Phase.HOME


def test_a_lost_worker_is_begun_again_with_its_history_quietly_and_then_its_debts():
    stream = make()
    fill(stream)  # chain 0: 0, 2
    stream.step(Arrived(C[0], 0, "batch"))
    start, *asks = stream.step(Lost(C[0], "killed"))
    assert start == Start(C[0])
    assert [(a.task.id, a.quiet) for a in asks] == [(0, True), (2, False)]
    assert (stream.num_lost, stream.num_replayed) == (1, 1)


def test_the_third_death_on_one_task_gives_it_up():
    stream = make()
    fill(stream)
    ends = [stream.step(Lost(C[0], how)) for how in ("1", "2", "3")]
    assert all(isinstance(end[0], Start) for end in ends[:2])
    assert {(type(a), a.task.id, a.how) for a in ends[2]} == {(GiveUp, 0, "3"), (GiveUp, 2, "3")}


def test_a_chain_that_is_given_up_gives_up_later_tasks_too():
    stream = make(num_chains=1)
    fill(stream)
    for how in ("1", "2", "3"):
        for action in stream.step(Lost(C[0], how)):
            if isinstance(action, GiveUp):
                stream.reorder.hold(action.task.id, "died")
    take_all(stream)
    assert all(isinstance(a, GiveUp) for a in fill(stream))


def test_a_deaths_count_does_not_survive_an_answer():
    stream = make()
    fill(stream)
    for task_id in (0, 2):
        for _ in range(Limits().max_deaths - 1):
            assert isinstance(stream.step(Lost(C[0], "killed"))[0], Start)
        stream.step(Arrived(C[0], task_id, "batch"))


def test_only_deaths_while_a_task_was_being_made_are_blamed_on_it():
    stream = make(num_chains=1)
    fill(stream)
    for begun in (-1, -1, 0, -1, 0, -1, -1):
        actions = stream.step(Lost(C[0], "killed", begun=begun))
        assert isinstance(actions[0], Start)
    actions = stream.step(Lost(C[0], "killed", begun=0))
    assert [a.num_in_vain for a in actions if isinstance(a, GiveUp)] == [5, 5]


def test_deaths_that_no_task_is_to_blame_for_slow_down_and_end_at_last():
    stream = make(num_chains=1)
    fill(stream)
    pauses_s = []
    for _ in range(Limits().max_in_vain - 1):
        pauses_s.append(stream.step(Lost(C[0], "killed", begun=-1))[0].after_s)
    assert pauses_s[0] == 0 and pauses_s == sorted(pauses_s) and pauses_s[-1] <= 2
    assert sum(pauses_s) > 5
    actions = stream.step(Lost(C[0], "killed", begun=-1))
    assert all(a.num_in_vain == Limits().max_in_vain for a in actions)


def test_where_stoker_failed_in_a_worker_it_is_tried_once_more():
    stream = make(num_chains=1)
    fill(stream)
    (start, *_) = stream.step(Lost(C[0], "failed", begun=-1, is_ours=True))
    assert isinstance(start, Start) and start.after_s == 0
    actions = stream.step(Lost(C[0], "failed", begun=-1, is_ours=True))
    assert {a.num_in_vain for a in actions if isinstance(a, GiveUp)} == {2}


def test_a_batch_ends_the_count_of_deaths_in_vain():
    stream = make(num_chains=1)
    fill(stream)
    for _ in range(Limits().max_in_vain - 1):
        stream.step(Lost(C[0], "killed", begun=-1))
    stream.step(Arrived(C[0], 0, "batch"))
    assert stream.step(Lost(C[0], "killed", begun=-1))[0].after_s == 0


def test_a_free_task_is_blamed_only_if_it_was_being_made():
    stream = free()
    fill(stream)
    first, second = list(stream.free.on[C[0]].values())[:2]
    stream.step(Lost(C[0], "killed", begun=second.id))
    assert (first.num_deaths, second.num_deaths) == (0, 1)


def test_a_chain_that_has_forgotten_its_past_cannot_go_on_without_its_point():
    stream = free()
    stream.step(Lost(C[0], "killed"))
    actions = stream.step(WorkerReady(C[0], b"moved", resumed=False))
    assert Kill(C[0]) in actions
    assert stream.chains[0].how_lost == BEYOND_HELP


def test_a_chain_that_resumed_goes_on():
    stream = free()
    stream.step(Lost(C[0], "killed"))
    assert stream.step(WorkerReady(C[0], b"same", resumed=True)) == []


def test_a_long_history_asks_a_witness_once_and_ends_it_when_it_has_told():
    stream = Stream(num_chains=1, prefetch_factor=2)
    body = bytes(Limits().long_history_nbytes)
    stream.step(Drawn(body))
    stream.step(Drawn(body))
    stream.step(Arrived(C[0], 0, "batch"))
    point = FakePoint(0)
    assert stream.step(PointTaken(0, point)) == [Start(FINGERPRINT, must_report=True)]
    assert stream.step(PointTaken(0, point)) == []
    assert stream.step(WorkerReady(FINGERPRINT, b"same")) == [Kill(FINGERPRINT)]
    assert [task.id for task in stream.chains[0]._tasks] == [1]


def test_the_death_of_a_witness_changes_nothing():
    stream = make()
    assert stream.step(Lost(FINGERPRINT, "killed")) == []
    assert stream.num_lost == 0


def test_late_news_after_close_is_normal():
    stream = make()
    fill(stream)
    stream.step(Closed())
    assert stream.step(Arrived(C[1], 77, "batch")) == []
    assert stream.step(Lost(C[0], "killed")) == []


def test_an_answer_that_nobody_asked_for_is_our_bug_and_tells_the_story():
    stream = make()
    fill(stream)
    stream.step(Lost(C[1], "killed"))
    with pytest.raises(
        BrokenGuarantee,
        match=r"batch 3 from Slot\(.*CHAIN.*number=1\).*Lost\(slot=Slot\(.*number=1",
    ):
        stream.step(Arrived(C[1], 3, "batch"))


def test_nothing_is_sent_home_before_torch_would_have_sent_it():
    stream = make(num_chains=2, prefetch_factor=2)
    assert [a.task.id for a in fill(stream)] == [0, 1, 2, 3]
    assert not stream.wants_index
    stream.step(Arrived(C[1], 1, "early"))
    assert take_all(stream) == [] and not stream.wants_index
    stream.step(Arrived(C[0], 0, "batch"))
    take_all(stream)
    assert [a.task.id for a in fill(stream)] == [4, 5]


def test_out_of_order_a_chain_that_has_enough_to_do_is_skipped():
    stream = Stream(num_chains=2, prefetch_factor=1, in_order=False)
    fill(stream)
    stream.step(Arrived(C[1], 1, "first"))
    assert stream.reorder.take() == (1, "first")
    stream.taken(1)
    assert [a.slot for a in fill(stream)] == [C[1]]


def test_the_next_epoch_begins_at_chain_0_with_the_old_debts_still_owed():
    stream = make(num_chains=3, prefetch_factor=1)
    fill(stream)
    stream.step(Arrived(C[0], 0, "batch"))
    stream.step(Restarted())
    stream.step(Arrived(C[1], 1, "old"))
    assert stream.reorder.take() is None
    assert [a.slot for a in fill(stream)] == C[:3]
    assert stream.next_slot == C[0]


# -- other machines ----------------------------------------------------------------------------


def away(capacity=2, **kwargs):
    """A stream whose chains went to other machines as soon as there were places."""
    stream = make(num_slots=2, **kwargs)
    fill(stream)
    stream.step(Offered(capacity, 0, b"same"))
    assert all(chain.is_away for chain in stream.chains)
    return stream


def starts(actions):
    return [action.away for action in actions if isinstance(action, Start)]


def test_what_kills_its_worker_on_other_machines_has_its_last_try_here():
    stream = away()
    assert starts(stream.step(Lost(C[0], "died"))) == [True]
    assert starts(stream.step(Lost(C[0], "died"))) == [False]
    assert starts(stream.step(Offered(3, 0, b"same"))) == []  # and stays
    assert not stream.chains[0].is_away
    assert [a.how for a in stream.step(Lost(C[0], "died here")) if isinstance(a, GiveUp)]


def test_an_answer_between_two_deaths_on_other_machines_makes_them_two_firsts():
    stream = away()
    stream.step(Lost(C[0], "died"))
    stream.step(Arrived(C[0], 0, "batch"))
    assert starts(stream.step(Lost(C[0], "died"))) == [True]


def test_a_free_task_that_kills_workers_on_other_machines_is_made_here():
    stream = free()
    hired = {a.slot for a in stream.step(Offered(2, 1, b"same")) if isinstance(a, Start)}
    fill(stream)
    deadly = next(iter(stream.free.on[min(hired)].values()))
    deadly.num_deaths = Limits().max_deaths - 2
    actions = stream.step(Lost(min(hired), "died"))
    (slot,) = [a.slot for a in actions if isinstance(a, Ask) and a.task is deadly]
    assert stream.is_here(slot)


def test_workers_that_die_one_after_another_on_other_machines_are_not_hired_for_ever():
    stream = free()
    stream.step(Offered(1, 1, b"same"))
    for k in range(Limits().max_deaths):
        (slot,) = [s for s in stream.free.on if s in R]
        hired = starts(stream.step(Lost(slot, "died")))
        assert hired == ([True] if k < Limits().max_deaths - 1 else [])
    assert starts(stream.step(Offered(2, 1, b"same"))) == []


def test_a_batch_that_is_late_while_a_chain_is_watched_is_asked_of_a_second_worker():
    stream = asked(may_hedge=True)  # 0 and 1 are held; 2 and 3 are owed
    stream.step(Offered(2, 1, b"same"))
    take_all(stream)
    second = next(a.slot for a in stream.step(Late(C[0], 2, 1e6, 1.0)) if isinstance(a, Start))
    for slot in stream.local_extras:
        stream.step(WorkerReady(slot, b"same"))
    stream.step(Arrived(C[1], 3, "batch"))
    stream.step(PointTaken(1, FakePoint(3)))
    assert stream.phase is Phase.ASKED  # for who knows which of the two lives
    assert Kill(C[0]) in stream.step(Arrived(second, 2, "batch"))
    stream.step(PointTaken(0, FakePoint(2)))
    assert stream.phase is Phase.FREE
    assert {a.slot for a in fill(stream) if isinstance(a, Ask)} >= {C[1], second}


def free_with_a_debt():
    """As `free`, where the chains owe tasks 4 and 5, which they were asked for before."""
    stream = asked(may_hedge=True)
    stream.step(Offered(2, 1, b"same"))
    take_all(stream)
    assert home_ids(fill(stream), slot=C[0]) == [4]
    for slot in stream.local_extras:
        stream.step(WorkerReady(slot, b"same"))
    for task_id in (2, 3):
        stream.step(Arrived(C[task_id % 2], task_id, "batch"))
        stream.step(PointTaken(task_id % 2, FakePoint(task_id)))
    assert stream.phase is Phase.FREE
    take_all(stream)
    assert stream.next_slot == C[0]
    return stream


def test_a_batch_owed_from_before_tasks_were_free_is_asked_of_another_worker_too():
    stream = free_with_a_debt()
    (ask,) = stream.step(Late(C[0], 4, 1.0, 1.0))
    assert (ask.task.id, ask.free, ask.slot != C[0]) == (4, True, True)
    assert stream.step(Late(C[0], 4, 2.0, 1.0)) == []
    stream.step(FreeArrived(ask.slot, 4, "first"))
    assert stream.reorder.take() == (4, "first")
    stream.step(Arrived(C[0], 4, "second"))
    stream.step(Arrived(C[1], 5, "batch"))
    assert stream.reorder.take() == (5, "batch")


def test_a_batch_that_two_owe_is_made_at_home_once():
    stream = free_with_a_debt()
    (ask,) = stream.step(Late(C[0], 4, 1.0, 1.0))
    actions = fill(stream) + stream.step(NotIndependent(ask.slot, 4, "drew"))
    assert stream.phase is Phase.BARRED
    assert home_ids(actions, slot=C[0]) == [6]


@pytest.mark.parametrize("then", ["the copy is refused", "it drew"])
def test_a_batch_that_home_made_first_is_not_made_there_again(then):
    stream = free_with_a_debt()
    (ask,) = stream.step(Late(C[0], 4, 1.0, 1.0))
    stream.step(Arrived(C[0], 4, "batch"))
    if then == "it drew":
        actions = stream.step(PointTaken(0, FakePoint(4, drew=True)))
        assert stream.phase is Phase.BARRED
        assert 4 not in home_ids(actions, slot=C[0])
    else:
        assert stream.step(NotIndependent(ask.slot, 4, "drew")) == []
    again = fill(stream) + stream.step(Lost(ask.slot, "killed"))
    assert 4 not in {action.task.id for action in again if isinstance(action, Ask)}


def test_a_worker_that_was_late_at_home_is_asked_again_once_it_has_answered():
    stream = free_with_a_debt()
    stream.step(Late(C[0], 4, 1.0, 1.0))
    assert C[0] not in {ask.slot for ask in fill(stream)[:1]}
    stream.step(Arrived(C[0], 4, "batch"))
    stream.step(PointTaken(0, FakePoint(4)))
    stream.step(Arrived(C[1], 5, "batch"))
    take_all(stream)
    assert C[0] in {ask.slot for ask in fill(stream)}


def test_what_was_made_elsewhere_did_not_see_what_its_chain_still_owes():
    """Task 4 may move the state that 6 depends on: nobody has seen it run."""
    stream = free_with_a_debt()
    asks = {a.task.id: a.slot for a in fill(stream)}
    stream.step(FreeArrived(asks[6], 6, "elsewhere"))
    stream.step(NotIndependent(asks[7], 7, "drew"))
    stream.step(Arrived(C[0], 4, "batch"))
    stream.step(Arrived(C[1], 5, "batch"))
    assert [left[0] for left in iter(stream.reorder.take, None)] == [4, 5]


def free_away():
    """As `free`, with a chain and a worker for free-standing tasks on two machines."""
    stream = make(num_slots=2)
    fill(stream)
    stream.step(Offered(2, 1, b"same"))
    (chain,) = [chain for chain in stream.chains if chain.is_away]
    for task_id in range(stream.next_id):
        stream.step(Arrived(C[task_id % 2], task_id, "batch"))
        stream.step(PointTaken(task_id % 2, FakePoint(task_id)))
    take_all(stream)
    fill(stream)
    assert stream.phase is Phase.FREE
    (extra,) = stream.extras
    return stream, chain, extra


def test_two_workers_share_no_place_while_tasks_are_free():
    stream, chain, _ = free_away()
    assert starts(stream.step(Offered(1, 1, b"same")) + stream.step(Lost(chain.slot, None))) == []
    assert chain.slot not in {a.slot for a in fill(stream) if isinstance(a, Ask)}
    assert starts(stream.step(Offered(2, 1, b"same"))) == [True]


def test_a_worker_that_shares_its_place_goes_where_there_is_one():
    stream, chain, extra = free_away()
    for slot in (extra, chain.slot):
        actions = stream.step(Offered(2, 1, b"same", (slot,)))
        assert (Kill(slot) in actions, starts(actions)) == (True, [True])


def test_a_chain_without_a_worker_gets_one_when_its_tasks_go_home():
    stream, chain, extra = free_away()
    stream.step(Offered(1, 1, b"same"))
    stream.step(Lost(chain.slot, None))
    owed = next(iter(stream.free.on[extra]))
    (start,) = [a for a in stream.step(NotIndependent(extra, owed, "drew")) if isinstance(a, Start)]
    assert (start.slot, start.away) == (chain.slot, True)


def test_a_chain_without_a_worker_gets_one_here_when_no_place_is_left():
    stream, chain, extra = free_away()
    stream.step(Offered(1, 1, b"same"))
    stream.step(Lost(chain.slot, None))
    (start, *_) = stream.step(Offered(0, 1, b"same"))
    assert (start.slot, start.away) == (chain.slot, False)
    assert chain.slot in {a.slot for a in stream.step(Lost(extra, None)) if isinstance(a, Ask)}


def test_a_worker_that_shares_its_place_and_owes_goes_when_it_owes_nothing():
    stream = free_with_a_debt()
    stream.chains[1].where = Where.REMOTE
    assert Kill(C[1]) not in stream.step(Offered(2, 1, b"same", (C[1],)))
    assert Kill(C[1]) in stream.step(Arrived(C[1], 5, "batch"))


def test_a_replacement_that_cannot_go_on_leaves_its_free_tasks_to_others():
    stream = free()
    fill(stream)
    stream.step(Lost(C[0], "killed"))
    owed = set(stream.free.on[C[0]])
    actions = stream.step(WorkerReady(C[0], b"other", resumed=False))
    assert Kill(C[0]) in actions and C[0] not in stream.free.on
    assert {a.task.id for a in actions if isinstance(a, Ask)} == owed
