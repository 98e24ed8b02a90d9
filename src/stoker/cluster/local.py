"""Workers on this machine: a template that is forked at iter() and forks them.

Promise: every worker, also one that replaces a dead one, starts from the trainer's memory at
iter(). When the trainer ends in any way, the template ends the workers and itself.

    trainer --control socket--> template --fork--> worker
       \\------------- the worker's own socket ------/

The control socket's other end is the trainer's alone: its end of file means that the trainer
is gone. Parent-death signals are not used for the template, they follow the forking thread.
"""

import array
import ctypes
import gc
import itertools
import multiprocessing.util
import os
import select
import signal
import socket
import struct
import traceback
from collections.abc import Callable, Sequence
from multiprocessing.process import BaseProcess
from typing import NoReturn

from stoker.clock import Deadline
from stoker.cluster.base import Exit
from stoker.cluster.sizing import usable_cores

_MESSAGE = struct.Struct("<Biii")  # op, slot, pid or signal, exit code or milliseconds
_START, _SIGNAL, _CLOSE, _STARTED, _EXITED, _REST = range(6)
_PR_SET_PDEATHSIG = 1

# A worker whose trainer is gone may finish its sample; all is over within 2 s.
ORPHAN_GRACE_S = 0.5
TERM_GRACE_S = 0.5

_libc = ctypes.CDLL(None)  # opened before any fork: dlopen takes locks

Body = Callable[[int, socket.socket], None]


def die_with_parent() -> None:
    """Have this process killed when the thread ends that started it, even while it is stopped."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


class Template:
    """The trainer's handle on its template. See `Cluster` for the calls."""

    why_no_replacement = ""

    def __init__(
        self,
        processes: Sequence[BaseProcess],
        body: Body,
        num_first: int,
        prepare: Callable[[], None] | None = None,
    ) -> None:
        """Fork the template, which starts as many of workers 0..num_first-1 as there are cores.

        Raises OSError where no process can be forked.

        processes: one never-started Process a chain, as torch would have made them; workers
        beyond use them again;
        body: what a worker runs, given its slot and its end of the socket;
        prepare: what the template itself runs first.
        """
        self._owner_pid = os.getpid()
        self.names = [process.name for process in processes]
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        pairs = [socket.socketpair() for _ in range(num_first)]
        self._control = ours
        self._pids: dict[int, int] = {}
        self._exits: dict[int, Exit] = {}
        self._is_gone = False
        num_at_once = usable_cores()
        self._has_rest = num_first > num_at_once
        self._first = [mine for mine, _ in pairs]
        # As Process.start does: else workers would print again what is not yet written.
        multiprocessing.util._flush_std_streams()  # type: ignore[attr-defined]
        try:
            self.pid = os.fork()
        except OSError:
            for sock in (ours, theirs, *itertools.chain.from_iterable(pairs)):
                sock.close()
            raise
        if self.pid == 0:
            for sock in (ours, *self._first):
                sock.close()
            others = {slot: pair[1] for slot, pair in enumerate(pairs)}
            _Forker(theirs, processes, body).serve_and_exit(others, num_at_once, prepare)
        theirs.close()
        for _, other in pairs:
            other.close()
        _living.add(self)

    def start(self, slot: int) -> socket.socket:
        if slot < len(self._first):
            first, self._first[slot] = self._first[slot], None  # type: ignore[call-overload]
            if first is not None:
                return first
        self._pids.pop(slot, None)
        self._exits.pop(slot, None)
        ours, theirs = socket.socketpair()
        fds = array.array("i", [theirs.fileno()])
        self._tell(_START, slot, 0, 0, [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)])
        theirs.close()
        return ours

    def start_rest(self) -> None:
        """Start the others of the first workers.

        To fork W of them takes W times as long as to fork one: the first batch shall not wait
        for that. Measured: benchmarks/epoch_gap.py
        """
        self._tell_rest(1)

    def drop_rest(self) -> None:
        """Close the sockets of workers that were never started, so that nobody waits for them."""
        self._tell_rest(0)

    def _tell_rest(self, start: int) -> None:
        if self._has_rest:
            self._has_rest = False
            self._tell(_REST, 0, start, 0)

    def signal(self, slot: int, signum: int) -> None:
        self._tell(_SIGNAL, slot, signum, 0)

    def wait_pid(self, slot: int, deadline: Deadline) -> int | None:
        self._listen_until(lambda: slot in self._pids, deadline)
        return self._pids.get(slot)

    def wait_exit(self, slot: int, deadline: Deadline) -> Exit | None:
        self._listen_until(lambda: slot in self._exits, deadline)
        return self._exits.get(slot)

    def fileno(self) -> int:
        """Readable when there is news of a worker's end, or of the template's own."""
        return self._control.fileno()

    @property
    def is_gone(self) -> bool:
        """Whether the template itself has ended: no worker can be started any more."""
        return self._is_gone

    def close(self, grace_s: float) -> None:
        """End the workers and the template. Does not wait: `reap` will see the end."""
        if os.getpid() != self._owner_pid:
            return
        for sock in filter(None, self._first):
            sock.close()
        if self._control.fileno() >= 0:
            self._tell(_CLOSE, 0, 0, int(grace_s * 1000))
        if not self.wait_gone(Deadline(0)):
            _leaving.add(self)

    def wait_gone(self, deadline: Deadline) -> bool:
        """Whether the template has ended, with all its workers, by then."""
        self._listen_until(lambda: False, deadline)
        if self._is_gone and self._control.fileno() >= 0:
            self._control.close()
            _living.discard(self)
            _reap_one(self.pid)
        return self._is_gone

    def kill(self) -> None:
        """End it now; its workers follow: PR_SET_PDEATHSIG. Waits for nobody's end of a socket."""
        os.kill(self.pid, signal.SIGKILL)
        self._is_gone = True
        self.wait_gone(Deadline(0))

    def abandon(self) -> None:
        """In a forked child: the sockets are the parent's affair."""
        self._control.close()
        for sock in filter(None, self._first):
            sock.close()

    def _tell(self, op: int, slot: int, a: int, b: int, anc: list[object] | None = None) -> None:
        try:
            self._control.sendmsg(
                [_MESSAGE.pack(op, slot, a, b)],
                anc or [],  # type: ignore[arg-type]
                socket.MSG_NOSIGNAL,
            )
        except OSError:
            self._is_gone = True

    def _listen_until(self, is_met: Callable[[], bool], deadline: Deadline) -> None:
        """Take the template's news until the condition holds, it is gone, or time is over."""
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
                return
            op, slot, pid, code = _MESSAGE.unpack(data)
            if op == _STARTED:
                self._pids[slot] = pid
            elif op == _EXITED and self._pids.get(slot) == pid:
                self._exits[slot] = Exit(slot, pid, code)


# Held here until they were seen to end: garbage collection finalizes a socket at any moment.
_living: set[Template] = set()
_leaving: set[Template] = set()  # of these, told to close


def reap() -> None:
    """Collect templates that have ended. Never waits."""
    for template in tuple(_leaving):
        if template.wait_gone(Deadline(0)):
            _leaving.discard(template)


def wait_all_gone(deadline: Deadline) -> None:
    """At exit: wait for every template that was told to close, then kill what is left."""
    for template in tuple(_leaving):
        if not template.wait_gone(deadline):
            template.kill()
        _leaving.discard(template)


def _reap_one(pid: int) -> None:
    try:
        os.waitpid(pid, 0)
    except ChildProcessError:
        return  # the script reaped it, or ignores SIGCHLD


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
    """Before the end: workers that still have to leave, and those that start for the next epoch.

    The kernel takes a process off its core at the next tick only, or when it yields.
    """
    os.nice(LEAVING_NICE)
    os.sched_yield()


class _Forker:
    """The template process. Runs no user code; every signal is blocked in it."""

    def __init__(
        self, control: socket.socket, processes: Sequence[BaseProcess], body: Body
    ) -> None:
        self._control = control
        self._processes = processes
        self._body = body
        self._pid_of_fd: dict[int, tuple[int, int]] = {}  # pidfd -> slot, pid
        self._poll = select.poll()
        self._pid = os.getpid()
        self._mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        self._ignores_children = signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN

    def serve_and_exit(
        self,
        first: dict[int, socket.socket],
        num_at_once: int,
        prepare: Callable[[], None] | None,
    ) -> NoReturn:
        status = 70
        try:
            if prepare is not None:
                prepare()
            if self._ignores_children:  # exit codes would be lost
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            gc.freeze()  # a collection in a worker then touches, and so copies, no old page
            self._poll.register(self._control, select.POLLIN)
            for slot in range(min(len(first), num_at_once)):
                self._start(slot, first.pop(slot), first)
            self._end_all(self._serve(first))
            _let_others_go_first()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)

    def _serve(self, rest: dict[int, socket.socket]) -> float:
        """Until the trainer says close or is gone. Returns the seconds that workers may have.

        rest: first workers that are not started yet.
        """
        while True:
            for fd, _ in self._poll.poll():
                if fd != self._control.fileno():
                    self._bury(fd)
                    continue
                data, fds = self._hear()
                if not data:
                    return ORPHAN_GRACE_S
                op, slot, signum, milliseconds = _MESSAGE.unpack(data)
                if op == _CLOSE:
                    return float(milliseconds) / 1000
                if op == _START:
                    sock = socket.socket(fileno=fds[0])
                    self._start(slot, sock, rest)
                elif op == _REST:
                    self._start_or_drop(rest, bool(signum))
                elif op == _SIGNAL:
                    self._signal(signum, slot)

    def _hear(self) -> tuple[bytes, list[int]]:
        try:
            data, anc, _, _ = self._control.recvmsg(_MESSAGE.size, socket.CMSG_SPACE(4))
        except OSError:
            return b"", []
        fds = array.array("i")
        for _, _, payload in anc:
            fds.frombytes(payload)
        return data, list(fds)

    def _start_or_drop(self, rest: dict[int, socket.socket], start: bool) -> None:
        while rest:
            slot = min(rest)
            sock = rest.pop(slot)
            if start:
                self._start(slot, sock, rest)
            else:
                sock.close()

    def _start(self, slot: int, sock: socket.socket, others: dict[int, socket.socket]) -> None:
        pid = os.fork()
        if pid == 0:
            self._become_worker(slot, sock, others)
        sock.close()
        pidfd = os.pidfd_open(pid)
        self._pid_of_fd[pidfd] = slot, pid
        self._poll.register(pidfd, select.POLLIN)
        self._say(_STARTED, slot, pid, 0)

    def _become_worker(
        self, slot: int, sock: socket.socket, others: dict[int, socket.socket]
    ) -> NoReturn:
        code = 1
        try:
            die_with_parent()
            if os.getppid() != self._pid:
                os._exit(1)
            for other in others.values():
                other.close()
            self._control.close()
            for pidfd in self._pid_of_fd:
                os.close(pidfd)
            process = self._processes[slot % len(self._processes)]
            process._target, process._args = self._run, (slot, sock)  # type: ignore[attr-defined]
            if self._ignores_children:
                signal.signal(signal.SIGCHLD, signal.SIG_IGN)
            code = process._bootstrap()  # type: ignore[attr-defined]
            sock.close()  # all is flushed: the trainer need not wait until memory is unmapped
            _let_others_go_first()
        finally:
            os._exit(code)

    def _run(self, slot: int, sock: socket.socket) -> None:
        """Signals are heard from here on: a Ctrl-C while the process was set up shows no traceback."""
        try:
            signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)
            self._body(slot, sock)
        except KeyboardInterrupt:
            pass  # the trainer raises it too

    def _signal(self, signum: int, slot: int | None = None) -> None:
        for at, pid in self._pid_of_fd.values():
            if slot is None or at == slot:
                os.kill(pid, signum)

    def _bury(self, pidfd: int) -> None:
        slot, pid = self._pid_of_fd.pop(pidfd)
        self._poll.unregister(pidfd)
        os.close(pidfd)
        _, status = os.waitpid(pid, 0)
        self._say(_EXITED, slot, pid, os.waitstatus_to_exitcode(status))

    def _say(self, op: int, slot: int, pid: int, code: int) -> None:
        try:
            self._control.send(_MESSAGE.pack(op, slot, pid, code), socket.MSG_NOSIGNAL)
        except OSError:
            return  # the trainer is gone: `_serve` will see it

    def _end_all(self, grace_s: float) -> None:
        """Close -> wait -> terminate -> wait -> kill."""
        self._poll.unregister(self._control)
        self._wait_buried(Deadline(grace_s))
        self._signal(signal.SIGTERM)
        self._wait_buried(Deadline(TERM_GRACE_S))
        self._signal(signal.SIGKILL)
        self._wait_buried(Deadline(None))

    def _wait_buried(self, deadline: Deadline) -> None:
        while self._pid_of_fd and not deadline.is_over():
            for fd, _ in self._poll.poll(deadline.left_ms()):
                self._bury(fd)
