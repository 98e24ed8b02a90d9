"""Forks workers on this machine from a template process, which is itself forked at iter(), or started
there by spawn or forkserver (started.py).

Promise: every worker, even one that replaces a dead one, starts from the trainer's memory at
iter(), or from what was pickled of it. When the trainer ends in any way, the template ends the workers and itself.

    trainer --control socket--> template --fork--> worker
       \\------------- the worker's own socket ------/

Only the trainer holds the control socket's other end: end of file means that the trainer is
gone. Parent-death signals are not used for the template, as they follow the forking thread.
The template is not a child of the trainer, so that the script's os.wait() does not see it.
"""

import array
import contextlib
import multiprocessing.util
import os
import signal
import socket
from collections.abc import Callable, Sequence
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import NoReturn

from stoker import descriptors, orphans
from stoker.clock import Deadline
from stoker.local.cluster import Cluster
from stoker.local.forker import (
    CLOSE,
    EXITED,
    MESSAGE,
    OWN,
    REFUSED,
    REST,
    SIGNAL,
    START,
    STARTED,
    TERM_GRACE_S,
    Body,
    Forker,
)
from stoker.local.forks import fork_orphan, fork_without_hooks, forked
from stoker.local.sizing import usable_cores
from stoker.poll_loop import wait_ready
from stoker.scheduler.tasks.slot import Exit, Role, Slot

REAPED_S = 5.0  # what PID 1 may take to reap a template; some look every two seconds
MAX_WHY_NBYTES = 4096
HELLO_S = 5.0  # what a template may take to tell its pid


class Template(Cluster):
    """The trainer's handle on its template. See `Cluster` for the calls."""

    why_gone = ""

    def __init__(
        self,
        processes: Sequence[BaseProcess],
        body: Body,
        first: Sequence[Slot],
        prepare: Callable[[], None] | None = None,
        shared: object = None,
    ) -> None:
        """Fork the template, which starts as many of the first slots' workers as there are cores.

        Raises OSError if no process can be forked.

        processes: one never-started Process per chain, as torch would have made them; further
        workers reuse them;
        body: what a worker runs, given its slot and its end of the socket;
        prepare: what the template itself runs first;
        shared: of what it reaches workers take no copies, see immortal.py.
        """
        # As Process.start does: else workers would print again what is not yet written.
        multiprocessing.util._flush_std_streams()  # type: ignore[attr-defined]
        theirs = self._open(processes)
        pairs = {slot: socket.socketpair() for slot in first}
        num_at_once = usable_cores()
        self._has_rest = len(pairs) > num_at_once
        self._first.update((slot, mine) for slot, (mine, _) in pairs.items())
        # On a host the template is the host's child, and prepare() the job's own code.
        is_scripts = prepare is None
        self._is_child = not is_scripts or orphans.come_here() or _stay_as_zombies()
        self._is_waited_for = is_scripts
        self._must_reap = is_scripts and self._is_child
        # Until each copy of the script is ours: a handler of the script's that raises there, as at
        # Ctrl-C, would have the copy run the script on.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            pid = forked() if self._is_child else fork_orphan()
            if pid == 0:
                fork = fork_without_hooks if is_scripts else os.fork
                self._become_template(
                    lambda: Forker(theirs, processes, body, fork, mask, shared),
                    {slot: pair[1] for slot, pair in pairs.items()},
                    num_at_once,
                    prepare,
                )
            if self._is_child:
                self._pids[OWN] = pid
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
        living.add(self)

    def _open(self, processes: Sequence[BaseProcess]) -> socket.socket:
        """Make the control socket; returns the template's end."""
        self._owner_pid = os.getpid()
        self.names = [process.name for process in processes]
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._control = descriptors.kept(ours)
        self._control_is = descriptors.of(self._control.fileno())
        self._pids: dict[Slot, int] = {}
        self._exits: dict[Slot, Exit] = {}
        self._has_ended: set[Slot] = set()  # since `take_ended`
        self._is_gone = self._has_rest = False
        self._first: dict[Slot, socket.socket] = {}
        return theirs

    def _become_template(
        self,
        make: Callable[[], "Forker"],
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
        self._has_rest = self._has_rest or after_s > 0
        return self._tell_start(slot, int(after_s * 1000))

    def _tell_start(self, slot: Slot, milliseconds: int) -> socket.socket:
        ours, theirs = socket.socketpair()
        fds = array.array("i", [theirs.fileno()])
        self._tell(START, slot, 0, milliseconds, [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)])
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
            self._tell(REST, OWN, start, 0)

    def signal(self, slot: Slot, signum: int) -> None:
        self._tell(SIGNAL, slot, signum, 0)

    def wait_pid(self, slot: Slot, deadline: Deadline) -> int | None:
        self._listen_until(lambda: slot in self._pids, deadline)
        return self._pids.get(slot)

    def wait_exit(self, slot: Slot, deadline: Deadline) -> Exit | None:
        self._listen_until(lambda: slot in self._exits, deadline)
        return self._exits.get(slot)

    @property
    def pid(self) -> int:
        """The template's pid; waits until the template has sent it. 0: it ended before that."""
        return self.wait_pid(OWN, Deadline(HELLO_S)) or 0

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
        """End the workers and the template. Waits, as torch does, until the workers are gone and what
        all of them had open is closed; not on a host, where `reap` is called."""
        if os.getpid() != self._owner_pid:
            return
        for sock in self._first.values():
            sock.close()
        if self._control.fileno() >= 0:
            self._tell(CLOSE, OWN, 0, int(grace_s * 1000))
        _leaving.add(self)
        wait_s = grace_s + 2 * TERM_GRACE_S if self._is_waited_for else 0
        # Where it is a child of the script's, as torch's workers are, it is none after the epoch.
        if not self.wait_gone(Deadline(wait_s)) and self._must_reap:
            self.kill()

    def wait_gone(self, deadline: Deadline) -> bool:
        """Whether the template has ended, with all its workers, by the deadline."""
        if self._control.fileno() >= 0 and not self._is_mine():
            self._is_gone = True  # the script closed it: so the template ends
        self._listen_until(lambda: False, deadline)
        if self._is_gone and self._control.fileno() >= 0:
            descriptors.close_socket(self._control, self._control_is)
            living.discard(self)
            _leaving.discard(self)
            self._reap()
        return self._is_gone

    def _reap(self) -> None:
        """Let the system forget the template, which has ended."""
        if self._is_child:
            _reap_one(self._pids[OWN])
        elif OWN in self._pids and len(_gone) < MAX_GONE:
            _gone[self._pids[OWN]] = Deadline(REAPED_S)

    def kill(self) -> None:
        """Kill the template; workers follow: PR_SET_PDEATHSIG. Waits for no end of a socket."""
        pid = self.pid
        if pid and not self._is_gone:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._is_gone = True
        self.wait_gone(Deadline(0))
        if self._must_reap:  # its workers are this process's children now
            for worker in self._pids.keys() - self._exits.keys() - {OWN}:
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
                [MESSAGE.pack(op, *slot, a, b)],
                anc or [],  # type: ignore[arg-type]
                socket.MSG_NOSIGNAL,
            )
        except OSError:
            self._is_gone = True

    def _listen_until(self, is_met: Callable[[], bool], deadline: Deadline) -> None:
        """Read the template's messages until the condition holds, it is gone, or time is over."""
        if self._control.fileno() < 0:
            return
        while not is_met() and not self._is_gone and wait_ready(self._control, by=deadline):
            try:
                data = self._control.recv(MESSAGE.size + MAX_WHY_NBYTES)
            except OSError:
                data = b""
            if not data:
                self._is_gone = True
                self._has_ended |= (
                    self._pids.keys() - self._exits.keys() - {OWN}
                )  # PR_SET_PDEATHSIG
                return
            op, role, number, pid, code = MESSAGE.unpack_from(data)
            slot = Slot(Role(role), number)
            if op == REFUSED:
                self.why_gone = data[MESSAGE.size :].decode(errors="replace")
            elif op == STARTED:
                self._pids[slot] = pid
            elif op == EXITED and slot == OWN:  # its end of the socket may be open in another fork
                self._is_gone = True
            elif op == EXITED and self._pids.get(slot) == pid:
                self._exits[slot] = Exit(slot, pid, code)
                self._has_ended.add(slot)


# Held here until they were seen to end: garbage collection finalizes a socket at any moment.
living: set[Template] = set()
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


def _abandon_all() -> None:
    for template in tuple(living):
        template.abandon()
    living.clear()
    _leaving.clear()


os.register_at_fork(after_in_child=_abandon_all)
