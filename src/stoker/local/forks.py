"""Forks processes that are nobody's child, that run no at-fork hook twice, or die with their parent."""

import _imp
import contextlib
import ctypes
import errno
import os
import signal
import sys
from multiprocessing import popen_fork

from stoker import orphans, stack
from stoker.clock import Deadline
from stoker.poll_loop import wait_ready

_PR_SET_PDEATHSIG = 1
# What the process between may take for at-fork functions of packages, which may wait for a thread
# that it does not have. It forks once: 0.1 s with a list of 8M pairs (decision 020).
BETWEEN_S = 20.0
_libc = ctypes.CDLL(None)  # opened before any fork: dlopen takes locks

# As CDLL, but the interpreter's lock stays with the thread that forks.
_python = ctypes.PyDLL(None, use_errno=True)


def die_with_parent() -> None:
    """Have this process killed when the thread that started it ends, even while it is stopped."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def forked() -> int:
    """Fork. Python 3.12 and later warn of that in a process with threads: of the line that forks
    torch's workers, so that the warning names it, too."""
    line = stack.standing_at(popen_fork.Popen._launch, "fork")  # type: ignore[attr-defined]
    pid: int = line(os.fork)
    return pid


def fork_orphan() -> int:
    """Fork by way of a process that ends at once, so that the new one is an orphan."""
    with orphans.unnoticed():
        between = forked()
        if between == 0:
            # What the script registered has run: twice would be once too often.
            pid = _python.fork()
            if pid:
                os._exit(0 if pid > 0 else 1)
            return 0
        try:
            try:
                _end_by(Deadline(BETWEEN_S), between)
            finally:
                _, status = os.waitpid(between, 0)
        except ChildProcessError:  # a thread of the script's took it, or it ignores SIGCHLD
            return between
    if os.WIFSIGNALED(status):
        raise OSError(errno.ETIMEDOUT, "an at-fork function does not return in a forked process")
    if status:
        raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))
    return between


def _end_by(deadline: Deadline, pid: int) -> None:
    """Kill a child that has not ended by the deadline. Raises what a signal handler raises."""
    try:
        pidfd = os.pidfd_open(pid)
    except OSError:  # it has gone, or the system refuses pidfds
        return
    try:
        if not wait_ready(pidfd, by=deadline):
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
    finally:
        os.close(pidfd)


def fork_without_hooks() -> int:
    """Fork as os.fork does in a process without threads, but run only the script's after_in_child
    hooks. The others ran when the trainer forked; here one might wait for ever for a thread that
    only the trainer has. A hook that undoes what another did may fail; that is not reported."""
    _imp.acquire_lock()  # as os.fork does
    pid = int(_python.fork())
    if pid:
        _imp.release_lock()
        if pid < 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        return pid
    told, sys.unraisablehook = sys.unraisablehook, lambda _: None
    try:
        _python.PyOS_AfterFork_Child()
    finally:
        sys.unraisablehook = told
    return 0
