"""Starts workers on this machine as torch starts them, by spawn or forkserver.

Promise: the first workers are started from the script's objects as they are, by the training
process itself, so that an object that cannot be pickled is reported where and as torch reports it.
A worker that replaces a dead one starts from a copy that was made then, if one could be made.
Owner: one thread.
"""

import contextlib
import os
import select
import signal
import socket
from collections.abc import Callable, Sequence
from multiprocessing.context import BaseContext
from multiprocessing.process import BaseProcess
from typing import Any

from stoker.clock import Deadline
from stoker.local.cluster import Cluster
from stoker.local.frozen import Frozen
from stoker.scheduler.tasks.slot import Exit, Slot

# A larger dataset is not copied for the case of a worker's death.
FROZEN_LIMIT_NBYTES = 256 << 20
TERM_GRACE_S = 0.5


class Spawned(Cluster):
    """Workers started by spawn or forkserver. See `Cluster` for the calls.

    target: what a worker runs, given `job`, its slot, its socket end and what `extra(slot)` gives.
    """

    def __init__(
        self,
        context: BaseContext,
        target: Callable[..., None],
        job: Any,
        extra: Callable[[Slot], tuple[object, ...]],
        first: Sequence[Slot],
    ) -> None:
        self._context, self._target, self._extra = context, target, extra
        self._owner_pid = os.getpid()
        self._processes: dict[Slot, BaseProcess] = {}
        self._exits: dict[Slot, Exit] = {}  # of the latest worker of a slot, if it has ended
        self.names: list[str] = []
        self._first: dict[Slot, socket.socket] = {}
        self._ends = select.epoll()  # of pidfds
        self._slot_of_fd: dict[int, Slot] = {}
        self._has_ended: set[Slot] = set()  # since `take_ended`
        self._is_closed = False
        try:
            for slot in first:
                self._first[slot] = self._start(slot, job)
                self.names.append(self._processes[slot].name)
        except BaseException:
            self.close(0.0)
            raise
        self.why_no_replacement = ""
        try:  # while the workers import torch, which takes longer
            self._frozen: Frozen | None = Frozen(job, FROZEN_LIMIT_NBYTES)
        except Exception as error:
            self._frozen, self.why_no_replacement = None, f"{type(error).__name__}: {error}"

    def start(self, slot: Slot, after_s: float = 0.0) -> socket.socket:
        """Start the worker now, whatever after_s: starting takes seconds anyway."""
        if slot in self._first:
            return self._first.pop(slot)
        assert self._frozen is not None, "nobody may ask for a replacement without a copy"
        return self._start(slot, self._frozen.thaw())

    def start_rest(self) -> None:
        return  # torch starts all at once

    def drop_rest(self) -> None:
        return

    def signal(self, slot: Slot, signum: int) -> None:
        process = self._processes.get(slot)
        if process is not None and process.is_alive() and process.pid is not None:
            # forkserver reaps its children: one may be gone before it has told.
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signum)

    def wait_pid(self, slot: Slot, deadline: Deadline) -> int | None:
        if slot in self._processes:
            return self._processes[slot].pid
        return self._exits[slot].pid if slot in self._exits else None

    def wait_exit(self, slot: Slot, deadline: Deadline) -> Exit | None:
        if slot in self._processes:
            self._collect(slot, deadline)
        return self._exits.get(slot)

    @property
    def is_gone(self) -> bool:
        return self._is_closed

    def news_fds(self) -> set[int]:
        return {self._ends.fileno()}

    def hear(self) -> None:
        for fd, _ in self._ends.poll(0):
            self._has_ended.add(self._slot_of_fd[fd])
            self._forget(fd)

    def take_ended(self) -> set[Slot]:
        ended, self._has_ended = self._has_ended, set()
        return ended

    def _watch(self, slot: Slot, pid: int) -> None:
        try:
            fd = os.pidfd_open(pid)
        except OSError:  # a sandbox's filter: the end of its socket tells, as it mostly does
            return
        self._slot_of_fd[fd] = slot
        self._ends.register(fd, select.EPOLLIN)

    def _forget(self, fd: int) -> None:
        del self._slot_of_fd[fd]
        self._ends.unregister(fd)
        os.close(fd)

    def _collect(self, slot: Slot, deadline: Deadline) -> None:
        """Wait for a worker's end, record how it ended, and close its pipes."""
        process = self._processes[slot]
        process.join(deadline.left_s())
        if process.exitcode is not None and process.pid is not None:
            self._exits[slot] = Exit(slot, process.pid, process.exitcode)
            del self._processes[slot]
            process.close()

    def close(self, grace_s: float) -> None:
        """End the workers: ask, terminate, kill. Waits, as torch does, until each has ended."""
        if os.getpid() != self._owner_pid or self._is_closed:
            return
        self._is_closed = True
        for sock in self._first.values():
            sock.close()
        for fd in tuple(self._slot_of_fd):
            self._forget(fd)
        self._ends.close()
        self._wait_gone(Deadline(grace_s))
        for signum, wait_s in ((signal.SIGTERM, TERM_GRACE_S), (signal.SIGKILL, None)):
            for slot in tuple(self._processes):
                self.signal(slot, signum)
            self._wait_gone(Deadline(wait_s))

    def _wait_gone(self, deadline: Deadline) -> None:
        for slot in tuple(self._processes):
            self._collect(slot, deadline)

    def _start(self, slot: Slot, job: Any) -> socket.socket:
        self._exits.pop(slot, None)
        self._has_ended.discard(slot)
        for fd in [fd for fd, of in self._slot_of_fd.items() if of == slot]:
            self._forget(fd)
        ours, theirs = socket.socketpair()
        process = self._context.Process(  # type: ignore[attr-defined]
            target=self._target, args=(job, slot, theirs, *self._extra(slot))
        )
        process.daemon = True
        try:
            process.start()
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        self._processes[slot] = process
        assert process.pid is not None
        self._watch(slot, process.pid)
        return ours
