"""Forks workers on this machine from a template process, which is itself forked at iter().

Promise: every worker, even one that replaces a dead one, starts from the trainer's memory at
iter(). When the trainer ends in any way, the template ends the workers and itself.

    trainer --control socket--> template --fork--> worker
       \\------------- the worker's own socket ------/

Only the trainer holds the control socket's other end: end of file means that the trainer is
gone. Parent-death signals are not used for the template, as they follow the forking thread.
The template is not a child of the trainer, so that the script's os.wait() does not see it.
"""

import _imp
import array
import contextlib
import ctypes
import errno
import gc
import multiprocessing.util
import os
import select
import signal
import socket
import struct
import sys
import traceback
from collections.abc import Callable, Sequence
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import NoReturn

from stoker import descriptors, orphans
from stoker.clock import Deadline
from stoker.local.cluster import Cluster
from stoker.local.sizing import usable_cores
from stoker.scheduler.tasks.slot import Exit, Role, Slot

_MESSAGE = struct.Struct("<BBiii")  # op, slot, pid or signal, exit code or milliseconds
_START, _SIGNAL, _CLOSE, _STARTED, _EXITED, _REST = range(6)
_PR_SET_PDEATHSIG = 1

# A worker whose trainer is gone may finish its sample; all is over within 2 s.
ORPHAN_GRACE_S = 0.5
TERM_GRACE_S = 0.5
# What the process between may take for at-fork functions of packages, which may wait for a thread
# that it does not have. It forks once: 0.1 s with a list of 8M pairs (decision 020).
BETWEEN_S = 20.0
REAPED_S = 5.0  # what PID 1 may take to reap a template; some look every two seconds
HELLO_S = 5.0  # what a template may take to tell its pid
LOOK_MS = 50  # how often workers are looked at where the system refuses pidfds

_libc = ctypes.CDLL(None)  # opened before any fork: dlopen takes locks

# As CDLL, but the interpreter's lock stays with the thread that forks.
_python = ctypes.PyDLL(None, use_errno=True)
_OWN = Slot(Role.CHAIN, -1)  # in place of a slot: the template itself

Body = Callable[[Slot, socket.socket], None]


def die_with_parent() -> None:
    """Have this process killed when the thread that started it ends, even while it is stopped."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


class Template(Cluster):
    """The trainer's handle on its template. See `Cluster` for the calls."""

    why_no_replacement = ""

    def __init__(
        self,
        processes: Sequence[BaseProcess],
        body: Body,
        first: Sequence[Slot],
        prepare: Callable[[], None] | None = None,
    ) -> None:
        """Fork the template, which starts as many of the first slots' workers as there are cores.

        Raises OSError if no process can be forked.

        processes: one never-started Process per chain, as torch would have made them; further
        workers reuse them;
        body: what a worker runs, given its slot and its end of the socket;
        prepare: what the template itself runs first.
        """
        # As Process.start does: else workers would print again what is not yet written.
        multiprocessing.util._flush_std_streams()  # type: ignore[attr-defined]
        self._owner_pid = os.getpid()
        self.names = [process.name for process in processes]
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        pairs = {slot: socket.socketpair() for slot in first}
        self._control = descriptors.kept(ours)
        self._control_is = descriptors.of(self._control.fileno())
        self._pids: dict[Slot, int] = {}
        self._exits: dict[Slot, Exit] = {}
        self._has_ended: set[Slot] = set()  # since `take_ended`
        self._is_gone = False
        num_at_once = usable_cores()
        self._has_rest = len(pairs) > num_at_once
        self._first = {slot: mine for slot, (mine, _) in pairs.items()}
        # On a host the template is the host's child, and prepare() the job's own code.
        is_scripts = prepare is None
        self._is_child = not is_scripts or orphans.come_here() or _stay_as_zombies()
        self._must_reap = is_scripts and self._is_child
        # Until each copy of the script is ours: a handler of the script's that raises there, as at
        # Ctrl-C, would have the copy run the script on.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            pid = os.fork() if self._is_child else _fork_orphan()
            if pid == 0:
                fork = fork_without_hooks if is_scripts else os.fork
                self._become_template(
                    lambda: _Forker(theirs, processes, body, fork, mask),
                    {slot: pair[1] for slot, pair in pairs.items()},
                    num_at_once,
                    prepare,
                )
            if self._is_child:
                self._pids[_OWN] = pid
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)  # what has come meanwhile is handled
        except BaseException:
            self._control.close()  # a template that is there ends
            for sock in self._first.values():
                sock.close()
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            raise
        finally:
            for sock in (theirs, *(other for _, other in pairs.values())):
                sock.close()
        _living.add(self)

    def _become_template(
        self,
        make: Callable[[], "_Forker"],
        first: dict[Slot, socket.socket],
        num_at_once: int,
        prepare: Callable[[], None] | None,
    ) -> NoReturn:
        try:
            for sock in (self._control, *self._first.values()):
                sock.close()
            make().serve_and_exit(first, num_at_once, prepare)
        finally:
            os._exit(os.EX_SOFTWARE)

    def start(self, slot: Slot, after_s: float = 0.0) -> socket.socket:
        if slot in self._first:
            return self._first.pop(slot)
        self._pids.pop(slot, None)
        self._exits.pop(slot, None)
        self._has_ended.discard(slot)
        ours, theirs = socket.socketpair()
        fds = array.array("i", [theirs.fileno()])
        self._has_rest = self._has_rest or after_s > 0
        self._tell(
            _START, slot, 0, int(after_s * 1000), [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)]
        )
        theirs.close()
        return ours

    def start_rest(self) -> None:
        """Start the others of the first workers.

        Forking W of them takes W times as long as forking one: the first batch need not wait
        for that. Measured: benchmarks/epoch_gap.py
        """
        self._tell_rest(1)

    def drop_rest(self) -> None:
        """Close the sockets of workers that were never started, so that nothing waits for them."""
        self._tell_rest(0)

    def _tell_rest(self, start: int) -> None:
        if self._has_rest:
            self._has_rest = False
            self._tell(_REST, _OWN, start, 0)

    def signal(self, slot: Slot, signum: int) -> None:
        self._tell(_SIGNAL, slot, signum, 0)

    def wait_pid(self, slot: Slot, deadline: Deadline) -> int | None:
        self._listen_until(lambda: slot in self._pids, deadline)
        return self._pids.get(slot)

    def wait_exit(self, slot: Slot, deadline: Deadline) -> Exit | None:
        self._listen_until(lambda: slot in self._exits, deadline)
        return self._exits.get(slot)

    @property
    def pid(self) -> int:
        """The template's pid; waits until the template has sent it. 0: it ended before that."""
        return self.wait_pid(_OWN, Deadline(HELLO_S)) or 0

    def fileno(self) -> int:
        """Return the descriptor that is readable when a worker, or the template, may have ended."""
        return self._control.fileno()

    def news_fds(self) -> set[int]:
        return set() if self._is_gone else {self._control.fileno()}

    def hear(self) -> None:
        """Read the template's messages. Never waits."""
        self._listen_until(lambda: False, Deadline(0))

    def take_ended(self) -> set[Slot]:
        """Return slots whose latest worker is known to have ended, each once."""
        ended, self._has_ended = self._has_ended, set()
        return ended

    @property
    def is_gone(self) -> bool:
        """Whether the template itself has ended: no worker can be started any more."""
        return self._is_gone

    def close(self, grace_s: float) -> None:
        """End the workers and the template. Waits if it is the script's child; else see `reap`."""
        if os.getpid() != self._owner_pid:
            return
        for sock in self._first.values():
            sock.close()
        if self._control.fileno() >= 0:
            self._tell(_CLOSE, _OWN, 0, int(grace_s * 1000))
        # Where it is a child of the script's, as torch's workers are, it is none after the epoch.
        wait_s = grace_s + 2 * TERM_GRACE_S if self._must_reap else 0
        if not self.wait_gone(Deadline(wait_s)):
            _leaving.add(self)
            if self._must_reap:
                self.kill()

    def wait_gone(self, deadline: Deadline) -> bool:
        """Whether the template has ended, with all its workers, by the deadline."""
        if self._control.fileno() >= 0 and not self._is_mine():
            self._is_gone = True  # the script closed it: so the template ends
        self._listen_until(lambda: False, deadline)
        if self._is_gone and self._control.fileno() >= 0:
            descriptors.close_socket(self._control, self._control_is)
            _living.discard(self)
            _leaving.discard(self)
            if self._is_child:
                _reap_one(self._pids[_OWN])
            elif _OWN in self._pids and len(_gone) < MAX_GONE:
                _gone[self._pids[_OWN]] = Deadline(REAPED_S)
        return self._is_gone

    def kill(self) -> None:
        """Kill the template; workers follow: PR_SET_PDEATHSIG. Waits for no end of a socket."""
        pid = self.pid
        if pid and not self._is_gone:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._is_gone = True
        self.wait_gone(Deadline(0))
        if self._must_reap:  # its workers are this process's children now
            for worker in self._pids.keys() - self._exits.keys() - {_OWN}:
                _reap_one(self._pids[worker])

    def _is_mine(self) -> bool:
        return descriptors.is_still(self._control.fileno(), self._control_is)

    def abandon(self) -> None:
        """Close the sockets in a forked child: only the parent may use them."""
        descriptors.close_socket(self._control, self._control_is)
        for sock in self._first.values():
            sock.close()

    def _tell(self, op: int, slot: Slot, a: int, b: int, anc: list[object] | None = None) -> None:
        if not self._is_mine():  # the script closed it, and may have opened what is there now
            self._is_gone = True
            return
        try:
            self._control.sendmsg(
                [_MESSAGE.pack(op, *slot, a, b)],
                anc or [],  # type: ignore[arg-type]
                socket.MSG_NOSIGNAL,
            )
        except OSError:
            self._is_gone = True

    def _listen_until(self, is_met: Callable[[], bool], deadline: Deadline) -> None:
        """Read the template's messages until the condition holds, it is gone, or time is over."""
        if self._control.fileno() < 0:
            return
        poll = select.poll()
        poll.register(self._control, select.POLLIN)
        while not is_met() and not self._is_gone and poll.poll(deadline.left_ms()):
            try:
                data = self._control.recv(_MESSAGE.size)
            except OSError:
                data = b""
            if not data:
                self._is_gone = True
                self._has_ended |= (
                    self._pids.keys() - self._exits.keys() - {_OWN}
                )  # PR_SET_PDEATHSIG
                return
            op, role, number, pid, code = _MESSAGE.unpack(data)
            slot = Slot(Role(role), number)
            if op == _STARTED:
                self._pids[slot] = pid
            elif op == _EXITED and self._pids.get(slot) == pid:
                self._exits[slot] = Exit(slot, pid, code)
                self._has_ended.add(slot)


# Held here until they were seen to end: garbage collection finalizes a socket at any moment.
_living: set[Template] = set()
_leaving: set[Template] = set()  # of these, told to close


def reap() -> None:
    """Reap templates that have ended. Never waits."""
    for template in tuple(_leaving):
        if template.wait_gone(Deadline(0)):
            _leaving.discard(template)


def wait_all_gone(deadline: Deadline) -> None:
    """Wait, at exit, for every template that was told to close; then kill what is left."""
    for template in tuple(_leaving):
        if not template.wait_gone(deadline):
            template.kill()
        _leaving.discard(template)


def _reap_one(pid: int) -> None:
    try:
        os.waitpid(pid, 0)
    except ChildProcessError:
        return  # the script reaped it, or ignores SIGCHLD


_gone: dict[int, Deadline] = {}  # pids of orphans, and when they must be reaped; the oldest few
MAX_GONE = 4
_zombies: set[int] = set()


def _stay_as_zombies() -> bool:
    """Whether PID 1 reaps no orphans (as a container's `sleep`): templates are children then."""
    for pid in [pid for pid, due in _gone.items() if due.is_over()]:
        del _gone[pid]
        if not _zombies:
            with contextlib.suppress(OSError):
                stat = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
                _zombies.update({pid} if stat[0] == b"Z" else ())
    return bool(_zombies)


def _fork_orphan() -> int:
    """Fork by way of a process that ends at once, so that the new one is an orphan."""
    with orphans.unnoticed():
        between = os.fork()
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
        poll = select.poll()
        poll.register(pidfd, select.POLLIN)
        if not poll.poll(deadline.left_ms()):
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


def _abandon_all() -> None:
    for template in tuple(_living):
        template.abandon()
    _living.clear()
    _leaving.clear()


os.register_at_fork(after_in_child=_abandon_all)


# A process that has said all only unmaps its memory, which takes tens of milliseconds where the
# dataset is a long list. Ten leaves it a tenth of a full core, so that it ends in time.
# Measured, 8 workers: 80 to 110 ms between two epochs against 140 to 200 (benchmarks/epoch_gap.py)
LEAVING_NICE = 10


def _let_others_go_first() -> None:
    """Yield the core before ending, to workers that still have to end or start for the next epoch.

    The kernel takes a process off its core at the next tick only, or when it yields.
    """
    os.nice(LEAVING_NICE)
    os.sched_yield()


class _Forker:
    """The template process. Runs no user code; every signal is blocked in it."""

    def __init__(
        self,
        control: socket.socket,
        processes: Sequence[BaseProcess],
        body: Body,
        fork: Callable[[], int],
        mask: set[int | signal.Signals],
    ) -> None:
        """Make a template's server. mask: signals that the script has blocked; workers begin so."""
        self._control = control
        self._fork = fork
        self._processes = processes
        self._body = body
        self._later: dict[Slot, tuple[Deadline, socket.socket]] = {}  # by slot, to be started then
        self._slot_of: dict[int, Slot] = {}  # by pid, of living workers
        self._pid_of_fd: dict[int, int] = {}  # by pidfd; none where the system refuses them
        self._poll = select.poll()
        self._pid = os.getpid()
        self._mask = mask
        self._ignores_children = signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN

    def serve_and_exit(
        self,
        first: dict[Slot, socket.socket],
        num_at_once: int,
        prepare: Callable[[], None] | None,
    ) -> NoReturn:
        status = os.EX_SOFTWARE
        try:
            if prepare is not None:
                prepare()
            if self._ignores_children:  # exit codes would be lost
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            self._say(_STARTED, _OWN, self._pid, 0)
            gc.freeze()  # a collection in a worker then touches, and so copies, no old page
            self._poll.register(self._control, select.POLLIN)
            for slot in tuple(first)[:num_at_once]:
                self._start(slot, first.pop(slot), first)
            self._end_all(self._serve(first))
            _let_others_go_first()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)

    def _serve(self, rest: dict[Slot, socket.socket]) -> float:
        """Serve until the trainer says close or is gone. Returns the seconds that workers may have.

        rest: first workers that are not started yet.
        """
        while True:
            self._start_due(rest)
            for fd, _ in self._wait_news(self._due_ms()):
                if fd != self._control.fileno():
                    continue
                data, fds = self._hear()
                if not data:
                    return ORPHAN_GRACE_S
                op, role, number, signum, milliseconds = _MESSAGE.unpack(data)
                slot = Slot(Role(role), number)
                if op == _CLOSE:
                    return float(milliseconds) / 1000
                if op == _START:
                    sock = socket.socket(fileno=fds[0])
                    self._later[slot] = Deadline(milliseconds / 1000), sock
                    self._start_due(rest)
                elif op == _REST:
                    self._start_or_drop(rest, bool(signum))
                elif op == _SIGNAL:
                    self._start_due(rest, slot)
                    self._signal(signum, slot)

    def _hear(self) -> tuple[bytes, list[int]]:
        try:
            data, anc, _, _ = self._control.recvmsg(
                _MESSAGE.size, socket.CMSG_SPACE(4), socket.MSG_CMSG_CLOEXEC
            )
        except OSError:
            return b"", []
        fds = array.array("i")
        for _, _, payload in anc:
            fds.frombytes(payload)
        return data, list(fds)

    def _due_ms(self) -> int | None:
        return min((due.left_ms() or 0 for due, _ in self._later.values()), default=None)

    def _start_due(self, rest: dict[Slot, socket.socket], at_once: Slot = _OWN) -> None:
        for slot in tuple(self._later):
            due, sock = self._later[slot]
            if due.is_over() or slot == at_once:
                del self._later[slot]
                self._start(slot, sock, rest)

    def _start_or_drop(self, rest: dict[Slot, socket.socket], start: bool) -> None:
        while self._later and not start:
            self._later.popitem()[1][1].close()
        while rest:
            slot = min(rest)
            sock = rest.pop(slot)
            if start:
                self._start(slot, sock, rest)
            else:
                sock.close()

    def _start(self, slot: Slot, sock: socket.socket, others: dict[Slot, socket.socket]) -> None:
        pid = self._fork()
        if pid == 0:
            self._become_worker(slot, sock, others)
        sock.close()
        self._slot_of[pid] = slot
        try:
            pidfd = os.pidfd_open(pid)
        except OSError:  # a sandbox's filter, or no descriptor left
            pass
        else:
            self._pid_of_fd[pidfd] = pid
            self._poll.register(pidfd, select.POLLIN)
        self._say(_STARTED, slot, pid, 0)

    def _wait_news(self, left_ms: float | None) -> list[tuple[int, int]]:
        """Wait for events, return their descriptors, tell the trainer which workers ended."""
        if len(self._pid_of_fd) < len(self._slot_of):
            left_ms = LOOK_MS if left_ms is None else min(left_ms, LOOK_MS)
        news = self._poll.poll(left_ms)
        for fd in [fd for fd, _ in news if fd in self._pid_of_fd]:
            self._poll.unregister(fd)
            os.close(fd)
            self._reap(self._pid_of_fd.pop(fd), 0)
        for pid in self._slot_of.keys() - set(self._pid_of_fd.values()):
            self._reap(pid, os.WNOHANG)
        return news

    def _become_worker(
        self, slot: Slot, sock: socket.socket, others: dict[Slot, socket.socket]
    ) -> NoReturn:
        code = 1
        try:
            die_with_parent()
            if os.getppid() != self._pid:
                os._exit(1)
            for other in (*others.values(), *(later for _, later in self._later.values())):
                other.close()
            self._control.close()
            for pidfd in self._pid_of_fd:
                os.close(pidfd)
            process = self._processes[slot.number % len(self._processes)]
            process._target, process._args = self._run, (slot, sock)  # type: ignore[attr-defined]
            if self._ignores_children:
                signal.signal(signal.SIGCHLD, signal.SIG_IGN)
            code = process._bootstrap()  # type: ignore[attr-defined]
            sock.close()  # all is flushed: the trainer need not wait until memory is unmapped
            _let_others_go_first()
        finally:
            os._exit(code)

    def _run(self, slot: Slot, sock: socket.socket) -> None:
        """Unblock signals and run the body: a Ctrl-C during set-up shows no traceback."""
        try:
            signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)
            self._body(slot, sock)
        except KeyboardInterrupt:
            pass  # the trainer raises it too

    def _signal(self, signum: int, slot: Slot | None = None) -> None:
        for pid, at in self._slot_of.items():
            if slot is None or at == slot:
                os.kill(pid, signum)

    def _reap(self, pid: int, options: int) -> None:
        ended, status = os.waitpid(pid, options)
        if ended:
            self._say(_EXITED, self._slot_of.pop(pid), pid, os.waitstatus_to_exitcode(status))

    def _say(self, op: int, slot: Slot, pid: int, code: int) -> None:
        try:
            self._control.send(_MESSAGE.pack(op, *slot, pid, code), socket.MSG_NOSIGNAL)
        except OSError:
            return  # the trainer is gone: `_serve` will see it

    def _end_all(self, grace_s: float) -> None:
        """End all workers: close -> wait -> terminate -> wait -> kill."""
        self._poll.unregister(self._control)
        self._wait_reaped(Deadline(grace_s))
        self._signal(signal.SIGTERM)
        self._wait_reaped(Deadline(TERM_GRACE_S))
        self._signal(signal.SIGKILL)
        self._wait_reaped(Deadline(None))

    def _wait_reaped(self, deadline: Deadline) -> None:
        while self._slot_of and not deadline.is_over():
            self._wait_news(deadline.left_ms())
