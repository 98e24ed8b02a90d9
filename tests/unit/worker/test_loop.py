"""Which task a worker does next, without a process."""

import socket

import pytest

from stoker.wire.channel import Channel
from stoker.wire.frame import Flag, Kind, pack
from stoker.worker.loop import Worker, _without_ours


@pytest.fixture
def pair():
    """The trainer's channel, and a worker that reads the other end."""
    ours, theirs = (Channel(sock) for sock in socket.socketpair())
    yield ours, Worker(None, None, theirs, None)
    ours.close()
    theirs.close()


def ask(channel, task_id, flags=0):
    body = b"indices of %d" % task_id
    head = pack(
        Kind.TASK,
        flags=flags,
        task_id=task_id,
        stream_nbytes=len(body),
        blob_nbytes=len(body),
    )
    channel.send(head, body)


def next_task(worker):
    frame = worker._wait_frame()
    return frame.header.task_id, bytes(frame.payload)


def done(worker, num):
    return [next_task(worker)[0] for _ in range(num)]


def test_of_free_tasks_the_first_that_leaves_is_done_first(pair):
    trainer, worker = pair
    for task_id in (5, 7, 2):
        ask(trainer, task_id, Flag.FREE)
    assert next_task(worker) == (2, b"indices of 2")
    ask(trainer, 4, Flag.FREE)
    assert done(worker, 3) == [4, 5, 7]


def test_a_chains_own_tasks_keep_their_order(pair):
    trainer, worker = pair
    for task_id in (8, 3, 5):
        ask(trainer, task_id)
    assert done(worker, 3) == [8, 3, 5]


def test_no_free_task_passes_one_of_a_chain(pair):
    trainer, worker = pair
    ask(trainer, 9, Flag.FREE)
    ask(trainer, 6)
    ask(trainer, 1, Flag.FREE)
    assert done(worker, 3) == [9, 6, 1]


def test_a_traceback_as_long_as_the_stack_stays_whole():
    def deeper():
        deeper()

    try:
        deeper()
    except RecursionError as error:
        trace = error.__traceback__
    shown = _without_ours(trace)
    num = 0
    while trace is not None:
        assert (shown.tb_frame, shown.tb_lineno) == (trace.tb_frame, trace.tb_lineno)
        trace, shown, num = trace.tb_next, shown.tb_next, num + 1
    assert shown is None and num > 500
