"""What a replacement of a stateful chain's worker does again, and where a resumed loader begins."""

from stoker.scheduler.decider import Stream
from stoker.scheduler.events import Arrived, Ask, Drawn, Rerun, Restarted, Resume, Start
from stoker.scheduler.history import Chain
from stoker.scheduler.tasks.plan import Task
from tests.slots import C


def answered(chain, *tasks):
    for task in tasks:
        chain.asked(task)
        chain.answered()


def test_batches_of_an_iterable_are_fetched_again_with_the_looks_that_were_taken():
    chain = Chain(number=1, is_iterable=True)
    looks = [True, True, False, True]
    answered(chain, *(Task(k, 1, b"i", wants_state=look) for k, look in enumerate(looks)))
    owed = Task(4, 1, b"i", wants_state=True)
    chain.asked(owed)
    assert chain.num_to_replay() == 4
    assert chain.replay([]) == [
        Start(C[1]), Rerun(C[1], 2, b"i", True), Rerun(C[1], 1, b"i", False), Rerun(C[1], 1, b"i", True),
        Ask(C[1], owed),
    ]  # fmt: skip


def test_a_map_style_chain_hears_of_every_epoch_again_where_it_heard_of_it():
    chain = Chain(number=0)
    tasks = [Task(0, 0, b"a"), Task(1, 0, b"b", epoch=1), Task(2, 0, b"c", epoch=3)]
    answered(chain, *tasks[:2])
    chain.asked(tasks[2])
    seeds = [b"1", b"2", b"3", b"4"]
    assert chain.replay(seeds) == [
        Start(C[0]), Ask(C[0], tasks[0], quiet=True), Resume(C[0], b"1"), Ask(C[0], tasks[1], quiet=True),
        Resume(C[0], b"2"), Resume(C[0], b"3"), Ask(C[0], tasks[2], watch=True), Resume(C[0], b"4"),
    ]  # fmt: skip


def stateful_stream(**options):
    return Stream(num_chains=3, prefetch_factor=1, is_stateful=True, **options)


def asks(stream, num):
    return [action for _ in range(num) for action in stream.step(Drawn(b"i", True))]


def test_a_resumed_stream_begins_with_the_chain_that_is_due_and_the_next_epoch_with_the_first():
    stream = stateful_stream(first_chain=2, persistent=True)
    assert [ask.slot for ask in asks(stream, 3)] == [C[2], C[0], C[1]]
    assert stream.next_slot == C[2]
    assert stream.step(Restarted(b"s")) == [Resume(C[chain], b"s") for chain in range(3)]
    for chain, task in ((2, 0), (0, 1), (1, 2)):
        stream.step(Arrived(C[chain], task, "late"))
    assert [ask.slot for ask in asks(stream, 3)] == C[:3]
    assert stream.next_slot == C[0]


def test_what_a_task_wants_to_be_told_goes_with_it():
    stream = stateful_stream()
    (ask,) = stream.step(Drawn(b"i", True))
    assert ask.task.wants_state
    (ask,) = stream.step(Drawn(b"i"))
    assert not ask.task.wants_state


def test_a_stateful_stream_never_draws_ahead():
    assert not stateful_stream(may_be_free=True, num_slots=8).may_be_free
