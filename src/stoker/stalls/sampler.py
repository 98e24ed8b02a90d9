"""Looks at what the training thread does, fifty times a second, from a thread of its own.

Promise: nothing of the script's runs in it; no other thread is looked at; no process is forked while it lives: it
ends before a fork, which Python would warn of (os.fork, 3.12), and begins again after it.
Owner: whoever starts it; what it finds it adds up by itself.
"""

import _thread
import os
import random
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from stoker.clock import Deadline, now_s
from stoker.stalls.kinds import Frame, Kind, Kinds, methods_of

# Between two looks: the mean. A look takes 30 us, 0.15 % of it. Of a random length, for steps may be as long.
PERIOD_S = 0.02
END_S = 0.1  # until it has ended; it waits for the interpreter's lock at most

Add = Callable[[Kind, float], None]


def sampler_of(add: Add, exposed: Callable[[], float], thread: int) -> "Sampler | None":
    """Return a sampler of a thread that trains, and start it; None where there is no torch, or no thread to be had.

    exposed: the share of a backward pass, at this moment, that waits for other ranks.
    """
    torch: Any = sys.modules.get("torch")
    if torch is None:
        return None
    methods = methods_of(torch.Tensor, (list, str, dict, set, bytes))
    folder = str(Path(torch.__file__).parent)
    sampler = Sampler(Kinds(folder, methods, lambda: _has_device(torch), exposed), add)
    sampler.thread = thread
    try:
        sampler.start()
    except RuntimeError:
        return None
    return sampler


def _has_device(torch: Any) -> bool:
    return bool(torch.cuda.is_initialized() or torch.xpu.is_initialized())


class Sampler:
    """Samples one thread. add: called with what it did, and for how long; by the sampler's thread."""

    def __init__(self, kinds: Kinds, add: Add) -> None:
        self.thread = 0  # that is looked at: its ident
        self._kinds, self._add = kinds, add
        self._stop = self._ended = _held_lock()
        self._tid = 0
        self._runs = self._is_paused = False
        os.register_at_fork(
            before=self.pause, after_in_parent=self.resume, after_in_child=self._forget
        )

    def start(self) -> None:
        """Start to look. Raises RuntimeError where no thread can be started."""
        if self._runs:
            return
        self._stop, self._ended = _held_lock(), _held_lock()
        _thread.start_new_thread(self._run, (self._stop, self._ended))  # not among threading's
        self._runs = True

    def stop(self) -> None:
        """End the thread. Idempotent."""
        if not self._runs:
            return
        self._runs = False
        self._stop.release()
        if self._ended.acquire(timeout=END_S):
            _wait_gone(self._tid)

    def pause(self) -> None:
        """End the thread, until `resume`."""
        self._is_paused = self._runs
        self.stop()

    def resume(self) -> None:
        if self._is_paused:
            self._is_paused = False
            try:
                self.start()
            except RuntimeError:  # no thread can be started: the rest is not looked at
                return

    def _forget(self) -> None:
        self._runs = self._is_paused = False

    def _run(self, stop: _thread.LockType, ended: _thread.LockType) -> None:
        self._tid = _thread.get_native_id()
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())  # they are the script's
        chance = random.Random(0)
        looked_s = now_s()
        while not stop.acquire(timeout=PERIOD_S * chance.uniform(0.5, 1.5)):
            frame: Frame | None = sys._current_frames().get(self.thread)
            if frame is None:  # the thread has ended
                break
            found = self._kinds.of(frame)
            del frame  # else all that it holds lives until the next look
            before_s, looked_s = looked_s, now_s()
            for kind, share in found:
                self._add(kind, share * (looked_s - before_s))
        ended.release()


def _held_lock() -> _thread.LockType:
    lock = _thread.allocate_lock()
    lock.acquire()
    return lock


def _wait_gone(tid: int) -> None:
    """Wait until a thread that has released its lock is none of the kernel's any more: some microseconds."""
    by = Deadline(END_S)
    task = Path(f"/proc/self/task/{tid}")
    while task.exists() and not by.is_over():
        os.sched_yield()
