"""What a host does with the workers it was told to start: real hosts, and a trainer that the test is."""

import pytest

from stoker.remote.net.control import Exited, decode
from stoker.remote.net.link import BEAT_S, Word
from stoker.wire.marks import NOTHING
from tests.process.job_data import Lists
from tests.process.one_trainer import OneTrainer, one_trainer, packed

JOB = 0


@pytest.fixture(scope="module")
def trainer():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONHASHSEED", "1")
        with one_trainer(1) as made:
            yield made


@pytest.fixture(autouse=True)
def nothing_is_left_behind() -> None:
    """In place of the one of tests/conftest.py: hosts outlive a test."""


@pytest.fixture
def host(trainer: OneTrainer):
    (host,) = trainer.hosts
    trainer.announce(JOB, packed(Lists()))
    trainer.until_ready(JOB)
    yield host
    trainer.forget(JOB)
    host.said.clear()


def test_a_long_list_of_indices_is_not_held_up(trainer, host):
    """What a socket does not take at once goes on as soon as the worker has read."""
    host.start(1, JOB, 0)
    host.task(1, [1, 2, 3])
    trainer.until(lambda: host.answers(1))
    before = host.num_beats
    host.task(1, list(range(1 << 20)), task_id=1)  # 5 MB
    took_s = trainer.until(lambda: len(host.answers(1)) == 2)
    assert took_s < 6 * BEAT_S and host.num_beats - before < 6, "25 times what a socket takes"


def test_a_slot_whose_worker_still_ends_gets_another_and_both_ends_are_told(trainer, host):
    for lane in (2, 3, 4):
        host.start(lane, JOB, 1)
        trainer.until(lambda lane=lane: host.words(Word.STARTED, lane))
        host.link.send(Word.HANG_UP, lane)
    trainer.until(lambda: all(host.words(Word.ENDED, lane) for lane in (2, 3, 4)))
    for lane in (2, 3, 4):
        (pid,) = host.words(Word.STARTED, lane)
        assert decode(host.words(Word.ENDED, lane)[0]) == Exited(int(pid), 0, NOTHING)


def test_a_slot_started_twice_at_once_runs_both(trainer, host):
    """And a signal is for the one that it was sent to."""
    host.start(5, JOB, 0)
    host.start(6, JOB, 0)
    for lane in (5, 6):
        host.task(lane, [1, 2])
    trainer.until(lambda: host.answers(5) and host.answers(6))
    trainer.until(lambda: host.words(Word.STARTED, 5) and host.words(Word.STARTED, 6))
    host.link.send(Word.SIGNAL, 5, b"9")
    trainer.until(lambda: host.words(Word.ENDED, 5))
    assert decode(host.words(Word.ENDED, 5)[0]).code == -9
    host.task(6, [1, 2], task_id=1)
    trainer.until(lambda: len(host.answers(6)) == 2)
    assert host.words(Word.ENDED, 6) == []
