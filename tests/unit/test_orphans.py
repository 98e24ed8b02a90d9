"""What runs beside a process without being its child, and what a script's SIGCHLD handler hears."""

import os
import signal
import sys
from collections.abc import Iterator

import pytest

from stoker import orphans
from stoker.orphans import Orphan, unnoticed


@pytest.fixture
def heard() -> Iterator[list[int]]:
    found: list[int] = []
    before = signal.signal(signal.SIGCHLD, lambda *_: found.append(1))
    yield found
    signal.signal(signal.SIGCHLD, before)


def ended_child() -> int:
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    return pid


@pytest.mark.parametrize("blocked", [(), (signal.SIGCHLD,)], ids=["free", "blocked"])
def test_a_handler_hears_of_the_scripts_children_alone(heard, blocked):
    signal.pthread_sigmask(signal.SIG_BLOCK, blocked)
    with unnoticed():
        os.waitpid(ended_child(), 0)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, blocked)
    assert heard == []
    with unnoticed():
        scripts = ended_child()
        os.waitpid(ended_child(), 0)
    assert heard == [1]
    os.waitpid(scripts, 0)
    os.waitpid(ended_child(), 0)
    assert heard == [1, 1]


@pytest.mark.parametrize("comes_here", [False, True], ids=["orphan", "child"])
def test_it_is_killed_and_waited_for_without_being_a_child(monkeypatch, heard, comes_here):
    monkeypatch.setattr(orphans, "come_here", lambda: comes_here)
    told_fd, tell_fd = os.pipe()
    program = "import os, sys; os.write(1, b'%d' % os.getpid()); sys.stdin.read()"
    other_fd, stdin_fd = os.pipe()
    process = Orphan([sys.executable, "-c", program], stdin=other_fd, stdout=tell_fd)
    os.close(tell_fd)
    os.close(other_fd)
    assert int(os.read(told_fd, 99)) == process.pid
    assert heard == []
    assert not process.has_ended(0)
    if not comes_here:
        with pytest.raises(ChildProcessError):
            os.waitpid(process.pid, os.WNOHANG)
    process.kill()
    assert process.has_ended(10)
    process.kill()
    process.let_go()
    process.let_go()
    for fd in (told_fd, stdin_fd):
        os.close(fd)


def test_a_program_that_ends_at_once_has_ended():
    process = Orphan([sys.executable, "-c", ""])
    assert process.has_ended(10)
    process.let_go()


def test_a_pidfd_that_the_script_has_closed_is_not_used():
    process = Orphan([sys.executable, "-c", "import signal; signal.pause()"])
    scripts, other = os.pipe()
    os.dup2(scripts, process._pidfd)
    number = process._pidfd
    assert process.has_ended(0)  # nobody can tell
    process.kill()
    process.let_go()
    os.kill(process.pid, signal.SIGKILL)
    for fd in (scripts, other, number):
        os.close(fd)  # and would raise, had it been closed
