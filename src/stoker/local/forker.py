"""The template process, which forks workers, tells how they ended, and ends with the trainer.

It is told what to do on a socket of packets, MESSAGE each, with a worker's socket where one starts.
"""

import contextlib
import gc
import os
import signal
import socket
import struct
import traceback
from collections.abc import Callable, Sequence
from functools import partial
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import NoReturn

from stoker import descriptors
from stoker.clock import Deadline
from stoker.local import immortal
from stoker.local.forks import die_with_parent
from stoker.poll_loop import PollLoop
from stoker.scheduler.tasks.slot import Role, Slot

MESSAGE = struct.Struct("<BBiii")  # op, slot, pid or signal, exit code or milliseconds
# REFUSED: followed by why, in UTF-8, no worker is started; then the template ends.
START, SIGNAL, CLOSE, STARTED, EXITED, REST, REFUSED = range(7)
# A worker whose trainer is gone may finish its sample; all is over within 2 s.
ORPHAN_GRACE_S = 0.5
TERM_GRACE_S = 0.5
LOOK_S = 0.05  # how often workers are looked at where the system refuses pidfds
WITH_REST = -1  # in place of milliseconds: a worker starts when it is told REST
OWN = Slot(Role.CHAIN, -1)  # in place of a slot: the template itself

Body = Callable[[Slot, socket.socket], None]


# A template that has said all only unmaps its memory, which takes tens of milliseconds where the
# dataset is a long list: the next epoch's workers go first. Ten leaves it a tenth of a full core.
LEAVING_NICE = 10


class Forker:
    """The template process. Runs no user code; every signal is blocked in it."""

    def __init__(
        self,
        control: socket.socket,
        processes: Sequence[BaseProcess],
        body: Body,
        fork: Callable[[], int],
        mask: set[int | signal.Signals],
        shared: object = None,
        sentinel: int | None = None,
    ) -> None:
        """Make a template's server. mask: signals that the script has blocked; workers begin so; shared: of
        what it reaches workers take no copies; sentinel: a descriptor that is readable once the trainer is
        gone, for multiprocessing."""
        self._control = control
        self._fork = fork
        self._processes = processes
        self._body = body
        self._later: dict[Slot, tuple[Deadline, socket.socket]] = {}  # by slot, to be started then
        self._slot_of: dict[int, Slot] = {}  # by pid, of living workers
        self._pid_of_fd: dict[int, int] = {}  # by pidfd; none where the system refuses them
        self._loop = PollLoop()
        self._grace_s: float | None = None  # that workers have to end, once the trainer says close
        self._pid = os.getpid()
        self._mask = mask
        self._shared, self._sentinel = shared, sentinel
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
            self._say(STARTED, OWN, self._pid, 0)
            with contextlib.suppress(Exception):  # ours: then they are copied
                immortal.share(self._shared)
            gc.freeze()  # a collection in a worker then touches, and so copies, no old page
            self._loop.add(self._control.fileno(), partial(self._hear, first))
            for slot in tuple(first)[:num_at_once]:
                self._start(slot, first.pop(slot), first)
            self._end_all(self._serve(first))
            if prepare is None:  # nobody waits on a host
                self._let_go()
            os.nice(LEAVING_NICE)
            os.sched_yield()  # the kernel takes a process off its core at the next tick only
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)

    def _serve(self, rest: dict[Slot, socket.socket]) -> float:
        """Serve until the trainer says close or is gone. Returns the seconds that workers may have.

        rest: first workers that are not started yet.
        """
        while self._grace_s is None:
            self._start_due(rest)
            self._wait_news(self._due_s())
        return self._grace_s

    def _hear(self, rest: dict[Slot, socket.socket]) -> None:
        """Do what the trainer says."""
        data, fds = self._receive()
        if not data:
            self._grace_s = ORPHAN_GRACE_S
            return
        op, role, number, signum, milliseconds = MESSAGE.unpack(data)
        slot = Slot(Role(role), number)
        if op == CLOSE:
            self._grace_s = milliseconds / 1000
        elif op == START and milliseconds == WITH_REST:
            rest[slot] = socket.socket(fileno=fds[0])
        elif op == START:
            self._later[slot] = Deadline(milliseconds / 1000), socket.socket(fileno=fds[0])
            self._start_due(rest)
        elif op == REST:
            self._start_or_drop(rest, bool(signum))
        elif op == SIGNAL:
            self._start_due(rest, slot)
            self._signal(signum, slot)

    def _receive(self) -> tuple[bytes, list[int]]:
        try:
            return descriptors.receive(self._control, MESSAGE.size, 1)
        except OSError:
            return b"", []

    def _due_s(self) -> float | None:
        return min((due.left_s() or 0.0 for due, _ in self._later.values()), default=None)

    def _start_due(self, rest: dict[Slot, socket.socket], at_once: Slot = OWN) -> None:
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
            self._loop.add(pidfd, partial(self._ended, pidfd))
        self._say(STARTED, slot, pid, 0)

    def _wait_news(self, left_s: float | None) -> None:
        """Wait for the trainer's word or a worker's end, and do what is to be done about it."""
        if len(self._pid_of_fd) < len(self._slot_of):
            left_s = LOOK_S if left_s is None else min(left_s, LOOK_S)
        self._loop.wait(left_s)
        for pid in self._slot_of.keys() - set(self._pid_of_fd.values()):
            self._reap(pid, os.WNOHANG)

    def _ended(self, pidfd: int) -> None:
        self._loop.remove(pidfd)
        os.close(pidfd)
        self._reap(self._pid_of_fd.pop(pidfd), 0)

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
            code = process._bootstrap(self._sentinel)  # type: ignore[attr-defined]
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
            self._say(EXITED, self._slot_of.pop(pid), pid, os.waitstatus_to_exitcode(status))

    def _say(self, op: int, slot: Slot, pid: int, code: int) -> None:
        try:
            self._control.send(MESSAGE.pack(op, *slot, pid, code), socket.MSG_NOSIGNAL)
        except OSError:
            return  # the trainer is gone: `_serve` will see it

    def _end_all(self, grace_s: float) -> None:
        """End all workers: close -> wait -> terminate -> wait -> kill."""
        self._loop.remove(self._control.fileno())
        self._wait_reaped(Deadline(grace_s))
        self._signal(signal.SIGTERM)
        self._wait_reaped(Deadline(TERM_GRACE_S))
        self._signal(signal.SIGKILL)
        self._wait_reaped(Deadline(None))

    def _let_go(self) -> None:
        """Close what the script had open, and say so: the trainer does not wait until this memory is
        unmapped."""
        control = self._control.fileno()
        with contextlib.suppress(OSError):  # no /proc
            for fd in {int(link.name) for link in Path("/proc/self/fd").iterdir()} - {control}:
                with contextlib.suppress(OSError):  # the folder's own is closed already
                    os.close(fd)
        self._say(EXITED, OWN, self._pid, 0)

    def _wait_reaped(self, deadline: Deadline) -> None:
        while self._slot_of and not deadline.is_over():
            self._wait_news(deadline.left_s())
