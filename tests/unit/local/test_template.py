"""A template is forked without a trace in the script: signals, and descriptors of the script's."""

import multiprocessing
import os
import select
import signal
import socket
from collections.abc import Callable, Iterator

import pytest

from stoker.clock import Deadline
from stoker.local import forks
from stoker.local import template as local
from stoker.local.template import Template


class Forks:
    """The C library's fork, and then a signal from the process between."""

    def __init__(self, trainer_pid: int, send: Callable[[], None]) -> None:
        self._python, self._trainer_pid, self._send = forks._python, trainer_pid, send

    def __getattr__(self, name: str) -> object:
        return getattr(self._python, name)

    def fork(self) -> int:
        pid = int(self._python.fork())
        if os.getppid() == self._trainer_pid:
            self._send()
        return pid


@pytest.fixture(autouse=True)
def pid_1_reaps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else templates are children, as after a test during which it was slow to."""
    monkeypatch.setattr(local, "_stay_as_zombies", lambda: False)


def template() -> Template:
    process = multiprocessing.get_context("fork").Process(daemon=True)
    return Template([process], lambda slot, sock: None, ())


@pytest.fixture
def handler() -> Iterator[Callable[[Callable[..., None]], None]]:
    before = signal.getsignal(signal.SIGUSR1)
    yield lambda call: signal.signal(signal.SIGUSR1, call) and None
    signal.signal(signal.SIGUSR1, before)


def test_a_signal_to_the_group_while_it_is_forked_runs_the_scripts_handler_in_no_copy(
    monkeypatch, handler
):
    pid, (reader, writer) = os.getpid(), os.pipe()
    handler(lambda *_: os.write(writer, b"%d " % os.getpid()))
    send = lambda: os.kill(os.getpid(), signal.SIGUSR1)  # noqa: E731
    monkeypatch.setattr(forks, "_python", Forks(pid, send))
    made = template()
    signal.raise_signal(signal.SIGUSR1)
    assert os.read(reader, 1000) == b"%d " % pid
    made.close(0.0)
    assert made.wait_gone(Deadline(5))
    os.close(reader)
    os.close(writer)


def test_where_a_handler_raises_while_it_is_forked_it_ends(monkeypatch, handler):
    pid, (reader, writer) = os.getpid(), os.pipe()

    def interrupt(signum, frame):
        raise TimeoutError

    handler(interrupt)
    monkeypatch.setattr(forks, "_python", Forks(pid, send=lambda: os.kill(pid, signal.SIGUSR1)))
    with pytest.raises(TimeoutError):
        template()
    os.close(writer)  # the template has a copy
    poll = select.poll()
    poll.register(reader, select.POLLIN)
    assert poll.poll(5000)
    os.close(reader)
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == set()


def test_nothing_is_said_to_what_has_the_number_of_its_socket():
    made = template()
    pidfd = os.pidfd_open(made.pid)
    mine, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    number = os.dup2(mine.fileno(), made.fileno(), inheritable=False)
    made.close(0.0)
    assert made.is_gone
    other.setblocking(False)
    with pytest.raises(BlockingIOError):
        other.recv(1)
    for sock in (mine, other):
        sock.close()
    os.close(number)
    poll = select.poll()  # it may see pooled memory until it ends: what watches for that stays open
    poll.register(pidfd, select.POLLIN)
    assert poll.poll(5000)
    os.close(pidfd)
