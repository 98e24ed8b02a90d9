"""A template that is started by spawn or forkserver: unpickles the script's objects once, and forks.

Promise: the training process itself starts it, by the script's context and from the objects as they are,
so that what cannot be pickled is reported where and as torch reports it. Where one copy cannot stand for
that of each worker (one_copy.py) no worker is started, and the trainer is told why.
"""

import contextlib
import multiprocessing.process
import os
import signal
import socket
import threading
from collections.abc import Iterator, Sequence
from multiprocessing.context import BaseContext
from multiprocessing.process import BaseProcess
from multiprocessing.reduction import ForkingPickler
from typing import Any

import torch

from stoker import at_fork
from stoker.blame import DIED_EARLY, LeftToTorch
from stoker.clock import Deadline
from stoker.local import fork_server, one_copy
from stoker.local.forker import CLOSE, MESSAGE, OWN, REFUSED, WITH_REST, Body, Forker
from stoker.local.forks import fork_without_hooks
from stoker.local.sizing import usable_cores
from stoker.local.template import Template, living
from stoker.scheduler.tasks.slot import Slot
from stoker.shared_tensors import SharedTensors
from stoker.trusted import looked_for_children

# Unpickling may wait for what the script does after iter(): then nobody knows whether it will do.
ANSWER_S = 60.0


class Started(Template):
    """The trainer's handle on it. See `Cluster` for the calls."""

    def __init__(
        self,
        context: BaseContext,
        processes: Sequence[BaseProcess],
        body: Body,
        first: Sequence[Slot],
        is_to_look: bool = False,
        shared: object = None,
        tensors: SharedTensors | None = None,
    ) -> None:
        """Start the template by the first of the processes, and wait for what it says of its copy. Raises what
        starting it raises, LeftToTorch if workers cannot be its forks: torch is to pickle the same objects.

        context, processes, body, first, shared: see `Template`; the body travels, with all that it holds;
        is_to_look: whether workers will ask what the script has put into libraries; tensors: of the body,
        is given those that workers and loop share.
        """
        theirs = self._open(processes)
        self._process = own = processes[0]
        is_spawned = context.get_start_method() == "spawn"
        self._is_child = self._must_reap = is_spawned  # else it is the fork server's
        self._is_waited_for = True
        own._name = name = one_copy.Watched(own.name)  # type: ignore[attr-defined]
        name.imported = fork_server.LOADED
        fork_server.begin(context)
        own._target, own._args = _serve, (theirs, processes[1:], body, is_to_look, shared)  # type: ignore[attr-defined]
        try:
            with _noting(tensors):
                own.start()
        except BaseException:
            self._control.close()
            raise
        finally:
            theirs.close()
        # Of multiprocessing's own children, whom it ends and waits for.
        multiprocessing.process._children.discard(own)  # type: ignore[attr-defined]
        assert own.pid is not None
        self._pids[OWN] = own.pid
        living.add(self)
        num_at_once = usable_cores()
        self._has_rest = len(first) > num_at_once
        for number, slot in enumerate(first):
            self._first[slot] = self._tell_start(slot, 0 if number < num_at_once else WITH_REST)
        try:
            self._listen_until(self._has_answered, Deadline(ANSWER_S))
            if self.why_gone or self._is_gone:
                raise LeftToTorch(self.why_gone or DIED_EARLY)
        except BaseException:
            self.close(0.0)
            raise

    def _has_answered(self) -> bool:
        return bool(self.why_gone) or len(self._pids) > 1

    def close(self, grace_s: float) -> None:
        super().close(grace_s)
        if not self._is_gone and os.getpid() == self._owner_pid:
            self.kill()  # it may still unpickle

    def _reap(self) -> None:
        if self._is_child:
            self._process.join()
        with contextlib.suppress(ValueError):  # it is still ending: the fork server waits for it
            self._process.close()


_here = threading.local()  # `tensors`: of the loader that this thread starts
_lock = threading.Lock()  # of the next two
_num_noting = 0
# The function that `_reduced` stands in for; it stays, as another thread may be in there.
_torchs: Any = None


@contextlib.contextmanager
def _noting(tensors: SharedTensors | None) -> Iterator[None]:
    """Note the storages of the tensors on the CPU that this thread pickles meanwhile: torch shares them.
    Source: torch/multiprocessing/reductions.py `init_reductions`, 2.13."""
    global _num_noting, _torchs
    reducers = ForkingPickler._extra_reducers  # type: ignore[attr-defined]
    _here.tensors = tensors
    with _lock:
        _num_noting += 1
        if reducers[torch.UntypedStorage] is not _reduced:
            _torchs, reducers[torch.UntypedStorage] = reducers[torch.UntypedStorage], _reduced
    try:
        yield
    finally:
        _here.tensors = None
        with _lock:
            _num_noting -= 1
            if not _num_noting:
                reducers[torch.UntypedStorage] = _torchs
    if tensors is not None:
        tensors.add_noted()


def _reduced(storage: torch.UntypedStorage) -> Any:
    told = _torchs(storage)  # by now it is where it stays
    tensors = getattr(_here, "tensors", None)
    if tensors is not None:
        tensors.note(storage)
    return told


def _serve(
    control: socket.socket,
    others: Sequence[BaseProcess],
    body: Body,
    is_to_look: bool,
    shared: object,
) -> None:
    """Fork workers until the trainer ends that. Runs as a process of multiprocessing's."""
    why = one_copy.end()
    control.set_inheritable(False)  # one that came with spawn is
    if why:
        with contextlib.suppress(OSError):  # the trainer is gone
            control.send(MESSAGE.pack(REFUSED, *OWN, 0, 0) + why.encode(), socket.MSG_NOSIGNAL)
            # What is left unread when this end is closed is an error at the other, before what was sent.
            while (told := control.recv(MESSAGE.size)) and told[0] != CLOSE:
                pass
        return
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    parent = multiprocessing.parent_process()
    processes = [multiprocessing.current_process(), *others]
    sentinel = None if parent is None else parent.sentinel
    forker = Forker(control, processes, body, fork_without_hooks, mask, shared, sentinel)
    is_to_look = is_to_look and not at_fork.has_functions_of_the_scripts()  # they run in between
    with looked_for_children() if is_to_look else contextlib.nullcontext():
        forker.serve_and_exit({}, 0, None)
