"""Workers that were given back in a long pause are wanted again as soon as a loop has work."""

import os
import socket

import pytest

from stoker.remote.net import control
from stoker.remote.net.printed import Printer
from stoker.remote.trainer import receiver as module
from stoker.remote.trainer.receiver import IDLE_S, Receiver


class Engine:
    """Remembers what was wanted of it."""

    def __init__(self):
        self.wanted = []

    def want(self, num):
        self.wanted.append(num)

    def publish(self, what):
        pass


@pytest.fixture
def idle(monkeypatch):
    """A receiver for which no batch has come for long, and its engine."""
    now = [1000.0]
    monkeypatch.setattr(module, "now_s", lambda: now[0])
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        receiver = Receiver(theirs, {}, Printer({}))
        engine = Engine()
        receiver._connected(engine)
        receiver._obey(control.Want(3), [])
        now[0] += IDLE_S + 1
        receiver._check_timeouts()
        assert engine.wanted == [3, 0]
        yield receiver, engine
        os.close(receiver._wake_fd)


def test_a_loop_that_asks_again_has_them_back(idle):
    receiver, engine = idle
    receiver._obey(control.Want(3), [])
    assert engine.wanted[-1] == 3


def test_a_loader_that_is_opened_has_them_back(idle, monkeypatch):
    receiver, engine = idle
    monkeypatch.setattr(
        receiver, "_open", lambda number, fd: None
    )  # a thread that takes the job in
    receiver._obey(control.Open(1), [-1])
    assert engine.wanted[-1] == 3
