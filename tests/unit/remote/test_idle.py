"""A long pause of the loop, in which it hears nothing: the receiver and its workers are there after it."""

import contextlib
import os
import socket
import threading

import pytest

from stoker.remote.net import control
from stoker.remote.net.printed import Printer
from stoker.remote.trainer import receiver as module
from stoker.remote.trainer.receiver import IDLE_S, Receiver

PATIENCE_S = 30.0


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


def test_a_trainer_that_did_not_listen_hears_all_that_was_said(monkeypatch):
    """More than its socket holds: the rest is sent when there is room, and nothing blocks for it."""

    class Over(Exception):
        pass

    def leave(self):
        raise Over

    def serve():
        with contextlib.suppress(Over):
            receiver._serve()

    monkeypatch.setattr(Receiver, "_leave", leave)  # it would end this process
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        receiver = Receiver(theirs, {}, Printer({}))
        num_said = 0
        while num_said < 100 or not receiver.has_unsent:
            receiver._say(control.Note(str(num_said)))
            num_said += 1
        for number in range(num_said, num_said + 3):
            receiver._say(control.Note(str(number)))
        serving = threading.Thread(target=serve)
        serving.start()
        try:
            ours.settimeout(PATIENCE_S)
            heard = []
            while len(heard) < num_said + 3:
                message = control.decode(ours.recv(control.MESSAGE_NBYTES))
                heard += [message.text] if isinstance(message, control.Note) else []
        finally:
            ours.close()
            serving.join(PATIENCE_S)
        assert heard == [str(number) for number in range(num_said + 3)]
        os.close(receiver._wake_fd)
