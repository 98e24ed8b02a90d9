"""What is printed on other machines: in order, whole lines or none, and nobody waits."""

import os
import select

import pytest

from stoker.clock import Deadline
from stoker.remote.net.printed import LIMIT_NBYTES, MESSAGE_NBYTES, STDERR, STDOUT, Flow, Printer

PATIENCE_S = 30.0
LINE = b"x" * 999 + b"\n"
COST_NBYTES = len(LINE) + MESSAGE_NBYTES


class Pipes:
    """The script's stdout and stderr, and who reads there."""

    def __init__(self):
        self.ends = {number: os.pipe() for number in (STDOUT, STDERR)}
        self.printer = Printer({number: ends[1] for number, ends in self.ends.items()})

    def read(self, number, until):
        """All that comes, until it ends so."""
        fd, data = self.ends[number][0], b""
        while not data.endswith(until):
            assert select.select([fd], [], [], PATIENCE_S)[0], data[-200:]
            data += os.read(fd, 1 << 16)
        return data


@pytest.fixture(autouse=True)
def nothing_is_left_behind():
    """In place of the one of tests/conftest.py: a printer's threads and pipes last as its process."""


def test_what_is_printed_comes_in_order_where_it_belongs():
    pipes = Pipes()
    lines = [b"line %d\n" % k for k in range(1000)]
    for line in lines:
        pipes.printer.print(STDOUT, line)
        pipes.printer.print(STDERR, line)
    for number in (STDOUT, STDERR):
        assert pipes.read(number, lines[-1]) == b"".join(lines)
    pipes.printer.wait_written(Deadline(PATIENCE_S))


@pytest.mark.parametrize("is_blocking", [True, False])
def test_who_does_not_read_holds_up_nobody_and_is_told_what_it_missed(is_blocking):
    pipes = Pipes()
    os.set_blocking(pipes.ends[STDOUT][1], is_blocking)
    num = 5 * LIMIT_NBYTES // COST_NBYTES
    for _ in range(num):
        pipes.printer.print(STDOUT, LINE)
    pipes.printer.wait_written(Deadline(0.1))
    pipes.printer.print(STDERR, b"stderr goes on\n")
    assert pipes.read(STDERR, b"\n") == b"stderr goes on\n"
    pipes.printer.check_timeouts()
    told = pipes.read(STDERR, b"\n").decode()
    num_dropped = int(told.split()[1].replace(",", ""))
    assert told.endswith("lines printed on other machines were dropped: too much at once\n")
    assert 0 < num_dropped < num
    pipes.printer.print(STDOUT, b"")  # wakes nobody
    came = b""
    while len(came) < (num - num_dropped) * len(LINE):
        assert select.select([pipes.ends[STDOUT][0]], [], [], PATIENCE_S)[0]
        came += os.read(pipes.ends[STDOUT][0], 1 << 16)
    assert came == LINE * (num - num_dropped)
    pipes.printer.print(STDOUT, b"and on\n")
    assert pipes.read(STDOUT, b"\n") == b"and on\n"


def test_a_stdout_that_was_closed_is_no_error():
    pipes = Pipes()
    os.close(pipes.ends[STDOUT][0])
    for _ in range(3):
        pipes.printer.print(STDOUT, LINE)
    pipes.printer.print(77, LINE)
    pipes.printer.wait_written(Deadline(PATIENCE_S))
    pipes.printer.print(STDERR, b"all is well\n")
    assert pipes.read(STDERR, b"\n") == b"all is well\n"


def test_a_flow_holds_back_nothing_and_keeps_no_more_than_its_limit():
    sent, callbacks = [], []

    def send(number, text, on_sent):
        sent.append((number, text))
        callbacks.append(on_sent)

    flow = Flow(send, "a node")
    for _ in range(3000):
        flow.take(STDOUT, LINE)
    assert len(sent) == LIMIT_NBYTES // COST_NBYTES
    flow.take(STDERR, b"on stderr\n")
    assert sent[-1] == (STDERR, b"on stderr\n")
    flow.check_timeouts()
    num = 3000 - LIMIT_NBYTES // COST_NBYTES
    note = f"stoker: {num:,} lines printed on a node were dropped: too much at once\n"
    assert sent[-1] == (STDERR, note.encode())
    flow.check_timeouts()
    assert sent[-1] == (STDERR, note.encode()) and len(sent) == LIMIT_NBYTES // COST_NBYTES + 2
    for callback in callbacks:
        callback()
    flow.take(STDOUT, LINE)
    assert sent[-1] == (STDOUT, LINE)
