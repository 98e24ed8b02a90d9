"""Looks at what the training thread does, fifty times a second, from a thread of its own.

Promise: calls nothing of the script's (Python may collect garbage in it, as in any thread); looks at no other thread;
no process is forked while it lives: it ends before a fork, which Python would warn of (os.fork, 3.12), and its owner starts it
again some time after it. Not at once: a thread that begins takes the interpreter's lock from the script in the moment in which
that may be about to wait, and a signal that comes then is heard only once it has waited (signal.pause, time.sleep).
Owner: whoever starts it; what it finds it adds up by itself.
"""

import _thread
import contextlib
import os
import random
import signal
import sys
import threading
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from stoker.clock import Deadline, now_s, thread_cpu_s
from stoker.stalls.kinds import Frame, Kind, Kinds, methods_of

# Between two looks: the mean. A look takes 30 us, 0.15 % of it. Of a random length, for steps may be as long.
PERIOD_S = 0.02
MAX_FRAC = 0.005  # of the interpreter's time, that looks may take in the long run
BURST_S = 0.05  # and at once: the first look at each place takes milliseconds, for it reads the code there
ALSO_EVERY = 10  # looks
END_S = 0.1  # until it has ended; it waits for the interpreter's lock at most

Add = Callable[[Kind, float], None]


class Looks(Protocol):
    """Tells what a thread does whose innermost frame is given: each part of it with its share of the moment."""

    def of(self, inner: Frame) -> Sequence[tuple[Any, float]]: ...


def _nothing() -> None:
    return None


def sampler_of(
    add: Add,
    exposed: Callable[[], float],
    is_behind: Callable[[], bool],
    thread: int,
    also: Callable[[], None] = _nothing,
) -> "Sampler | None":
    """Return a sampler of a thread that trains, and start it; None where there is no torch, or no thread to be had.

    exposed, is_behind: see Kinds; also: see Sampler.
    """
    torch: Any = sys.modules.get("torch")
    if torch is None:
        return None
    methods = methods_of(torch.Tensor, (list, str, dict, set, bytes))
    folder = str(Path(torch.__file__).parent)
    kinds = Kinds(folder, methods, lambda: _has_device(torch), exposed, is_behind)
    sampler = Sampler(kinds, add, also)
    sampler.thread = thread
    try:
        sampler.start()
    except RuntimeError:
        return None
    return sampler


def _has_device(torch: Any) -> bool:
    """Whether an accelerator is in use: of CUDA, or the one that torch knows beside it (MPS, XPU, a vendor's own)."""
    if torch.cuda.is_initialized():
        return True
    accelerator = torch.accelerator.current_accelerator()
    module = None if accelerator is None else getattr(torch, accelerator.type, None)
    is_initialized = getattr(module, "is_initialized", None)
    return module is not None and (is_initialized is None or bool(is_initialized()))


class Sampler:
    """Samples one thread. add: called with what it did, and for how long; also: called at every tenth look. Both by the
    sampler's thread."""

    def __init__(
        self, kinds: Looks, add: Callable[[Any, float], None], also: Callable[[], None] = _nothing
    ) -> None:
        self.thread = 0  # that is looked at: its ident
        self._kinds, self._add, self._also = kinds, add, also
        self._stop = self._ended = _held_lock()
        self._ident = self._tid = 0  # of the sampler's own, for Python and for the kernel
        self._runs = False
        self._num_pauses = 0  # forks that are about to happen, by several threads
        self._lock = threading.RLock()  # guards the four above; a signal handler may fork, too
        _samplers.add(self)

    def start(self) -> None:
        """Start to look; idempotent. Raises RuntimeError where no thread can be started."""
        if self._runs:
            return
        with self._lock:
            if self._runs or self._num_pauses:
                return
            self._stop, self._ended = _held_lock(), _held_lock()
            # From its first moment on signals are the script's.
            before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
            try:
                # Not among threading's.
                _thread.start_new_thread(self._run, (self._stop, self._ended))
                self._runs = True
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def stop(self) -> None:
        """End the thread. Idempotent."""
        with self._lock:
            self._end()

    def pause(self) -> None:
        """End the thread. It is not to be started before `resume` was called as often."""
        with self._lock:
            self._num_pauses += 1
            self._end()

    def resume(self) -> None:
        with self._lock:
            self._num_pauses -= 1

    def forget(self) -> None:
        """Have nothing to do with the thread, in a forked child."""
        self._runs = False
        self._num_pauses = 0
        self._lock = threading.RLock()

    def is_own(self, thread: int) -> bool:
        """Whether a thread is the sampler's own: garbage may be collected in it."""
        return self._runs and thread == self._ident

    def _end(self) -> None:
        if self._runs:
            self._runs = False
            self._stop.release()
            if self._ended.acquire(timeout=END_S):
                _wait_gone(self._tid)

    def _run(self, stop: _thread.LockType, ended: _thread.LockType) -> None:
        self._ident, self._tid = _thread.get_ident(), _thread.get_native_id()
        with contextlib.suppress(Exception):  # ours: the rest is not looked at
            self._look_until(stop)
        ended.release()

    def _look_until(self, stop: _thread.LockType) -> None:
        chance, looked_s, num, period_s = random.Random(0), now_s(), 0, PERIOD_S
        budget_s = BURST_S
        while not stop.acquire(timeout=period_s * chance.uniform(0.5, 1.5)):
            began_cpu_s = thread_cpu_s()
            frame: Frame | None = sys._current_frames().get(self.thread)
            found: Sequence[tuple[Any, float]]
            found = () if frame is None else self._kinds.of(frame)  # None: the thread has ended
            del frame  # else all that it holds lives until the next look
            before_s, looked_s = looked_s, now_s()
            for kind, share in found:
                self._add(kind, share * (looked_s - before_s))
            # A look goes through the stack. Where that is very deep, or an audit hook of the script's hears of each frame
            # (sys.addaudithook), looks are as rare as they are dear.
            gained_s = MAX_FRAC * (looked_s - before_s)
            budget_s = min(BURST_S, budget_s + gained_s) - (thread_cpu_s() - began_cpu_s)
            period_s = PERIOD_S + max(0.0, -budget_s / MAX_FRAC)
            num += 1
            if num % ALSO_EVERY == 0:
                self._also()


_samplers: weakref.WeakSet[Sampler] = weakref.WeakSet()


def _before_fork() -> None:
    for sampler in tuple(_samplers):
        sampler.pause()


def _after_fork_in_parent() -> None:
    for sampler in tuple(_samplers):
        sampler.resume()


def _after_fork_in_child() -> None:
    for sampler in tuple(_samplers):
        sampler.forget()


os.register_at_fork(
    before=_before_fork,
    after_in_parent=_after_fork_in_parent,
    after_in_child=_after_fork_in_child,
)


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
