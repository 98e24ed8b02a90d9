"""Starts programs that are not this process's children, and tells if orphans become its children.

Promise: standard library only.
"""

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

from stoker import descriptors
from stoker.clock import Deadline
from stoker.poll_loop import wait_ready

_PR_GET_CHILD_SUBREAPER = 37
_SIGACTION_NBYTES = 512  # more than struct sigaction has anywhere

_libc = ctypes.CDLL(None)  # opened before any fork: dlopen takes locks

# Starts the program, tells its pid, and ends: so that the program is nobody's child.
_BETWEEN = """
import os, sys
tell_fd, *command = sys.argv[1:]
pid = os.fork()
if pid:
    os.write(int(tell_fd), b"%d" % pid)
else:
    os.close(int(tell_fd))
    os.execv(command[0], command)
"""


def come_here() -> bool:
    """Whether orphans become this process's children: it is PID 1, or a subreaper (prctl(2)).
    Raises nothing."""
    is_subreaper = ctypes.c_int(0)
    _libc.prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(is_subreaper), 0, 0, 0)
    return os.getpid() == 1 or bool(is_subreaper.value)


@contextlib.contextmanager
def unnoticed() -> Iterator[None]:
    """Hide a child of ours that begins and ends within from the script's SIGCHLD handler, but let
    that run, afterwards, for a child of the script's that has ended meanwhile."""
    if signal.getsignal(signal.SIGCHLD) in (signal.SIG_DFL, signal.SIG_IGN):
        yield
        return
    before = ctypes.create_string_buffer(_SIGACTION_NBYTES)  # the flags, too, and of any thread
    _libc.sigaction(signal.SIGCHLD, None, before)
    _libc.signal(signal.SIGCHLD, None)  # SIG_DFL
    pid = os.getpid()
    try:
        yield
    finally:
        _libc.signal(signal.SIGCHLD, None)  # forgets one that is blocked and pending
        _libc.sigaction(signal.SIGCHLD, before, None)
        if os.getpid() == pid and _has_ended_child():
            os.kill(pid, signal.SIGCHLD)


def _has_ended_child() -> bool:
    try:
        return os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return False


class Orphan:
    """A program that runs beside this process and that the script's os.wait() does not see.

    It is a child all the same if orphans become this process's, or if the system refuses pidfds.
    """

    def __init__(self, command: list[str], **how: Any) -> None:
        """Start the program. how: as for subprocess.Popen. Raises OSError if that fails."""
        self._child: subprocess.Popen[bytes] | None = None
        self._pidfd = -1
        if come_here() or not _may_open_pidfds():
            self._child = subprocess.Popen(command, **how)
            self.pid = self._child.pid
            return
        told_fd, tell_fd = os.pipe()
        with unnoticed(), os.fdopen(told_fd, "rb") as told:
            try:
                between = subprocess.Popen(
                    [sys.executable, "-S", "-c", _BETWEEN, str(tell_fd), *command],
                    pass_fds=[tell_fd],
                    **how,
                )
            finally:
                os.close(tell_fd)
            self.pid = int(told.read() or 0)
            between.wait()
        if not self.pid:
            raise OSError(f"{command[0]} could not be started")
        with contextlib.suppress(ProcessLookupError):  # it has ended already
            self._pidfd = os.pidfd_open(self.pid)
            self._pidfd_is = descriptors.of(self._pidfd)

    def kill(self) -> None:
        """Send SIGKILL, if the program still runs."""
        if self._child is not None:
            self._child.kill()
        elif self._is_open():
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)

    def has_ended(self, within_s: float) -> bool:
        """Whether the program has ended, within so many seconds."""
        if self._child is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._child.wait(within_s)
            return self._child.returncode is not None
        if not self._is_open():
            return True  # as far as can be told
        return wait_ready(self._pidfd, by=Deadline(within_s))

    def let_go(self) -> None:
        """Stop tracking the program; also for a forked child, which cannot wait for it."""
        if self._child is not None and self._child.returncode is None:
            self._child.returncode = 0
        if self._is_open():
            os.close(self._pidfd)
        self._pidfd = -1

    def _is_open(self) -> bool:
        """Whether the pidfd is still ours: the script may have closed it."""
        return self._pidfd >= 0 and descriptors.is_still(self._pidfd, self._pidfd_is)


def _may_open_pidfds() -> bool:
    try:
        os.close(os.pidfd_open(os.getpid()))
    except OSError:
        return False
    return True
