"""Forwards what dataset code prints on other machines to the script's own stdout and stderr.

    job's process --pipe--> Flow, on its host --TEXT--> Printer, beside the trainer --> fd 1, fd 2

Promise: neither a worker nor the receiver's poll loop waits for a reader of these. Output that
comes faster than it is read is dropped, and a line on stderr says how much.
"""

import contextlib
import os
import queue
import threading
from collections.abc import Callable, Mapping

from stoker.clock import Deadline
from stoker.poll_loop import wait_ready

STDOUT, STDERR = 1, 2
LIMIT_NBYTES = 1 << 20  # on its way, of either
MESSAGE_NBYTES = 500  # what a message takes beside its text, which may be one character


class Bounded:
    """Counts bytes of output on their way, and lines dropped because those were too many."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._nbytes = {STDOUT: 0, STDERR: 0}
        self._num_dropped = 0
        self._has_dropped = False  # if only a part of a line

    @property
    def is_empty(self) -> bool:
        return not any(self._nbytes.values())

    def takes(self, number: int, text: bytes) -> bool:
        """Whether a text may be sent; if not, its lines are counted as dropped."""
        nbytes = self._nbytes[number] + len(text) + MESSAGE_NBYTES
        if self._nbytes[number] and nbytes > LIMIT_NBYTES:
            self._num_dropped += text.count(b"\n")
            self._has_dropped = True
            return False
        self._nbytes[number] = nbytes
        return True

    def went(self, number: int, text: bytes) -> None:
        self._nbytes[number] -= len(text) + MESSAGE_NBYTES

    def take_note(self) -> bytes:
        """Return a line about what was dropped; empty if nothing was, or stderr is too full."""
        if not self._has_dropped or self._nbytes[STDERR] > LIMIT_NBYTES // 2:
            return b""
        num, self._num_dropped, self._has_dropped = self._num_dropped, 0, False
        return (
            f"stoker: {num:,} lines printed {self._where} were dropped: too much at once\n".encode()
        )


class Flow:
    """The host's side. send: sends a text to the trainer, and calls back once it is sent."""

    def __init__(self, send: Callable[[int, bytes, Callable[[], None]], None], node: str) -> None:
        self._send = send
        self._bounded = Bounded(f"on {node}")

    def take(self, number: int, text: bytes) -> None:
        if self._bounded.takes(number, text):
            self._send(number, text, lambda: self._bounded.went(number, text))

    def check_timeouts(self) -> None:
        note = self._bounded.take_note()
        if note:
            self.take(STDERR, note)


class Printer:
    """The receiver's side. fds: of the script's stdout and stderr.

    Threads: one for each of the two, which may wait for its reader; it owns its descriptor.
    Shared: the queues, and `_bounded` under `_changed`.
    """

    def __init__(self, fds: Mapping[int, int]) -> None:
        self._fds = fds
        self._bounded = Bounded("on other machines")
        self._changed = threading.Condition()  # guards _bounded
        self._queues: dict[int, queue.SimpleQueue[bytes]] = {}

    def print(self, number: int, text: bytes) -> None:
        """Queue a text to be written; drop it if too much is queued. Never waits."""
        with self._changed:
            if number not in self._fds or not self._bounded.takes(number, text):
                return
        if number not in self._queues:
            self._queues[number] = queue.SimpleQueue()
            threading.Thread(target=self._write_all, args=(number,), daemon=True).start()
        self._queues[number].put(text)

    def check_timeouts(self) -> None:
        with self._changed:
            note = self._bounded.take_note()
        if note:
            self.print(STDERR, note)

    def _write_all(self, number: int) -> None:
        while True:
            text = self._queues[number].get()
            with contextlib.suppress(OSError):  # nobody reads any more
                _write(self._fds[number], text)
            with self._changed:
                self._bounded.went(number, text)
                self._changed.notify_all()

    def wait_written(self, deadline: Deadline) -> None:
        """Wait until all that was printed is written, or time is over."""
        with self._changed:
            self._changed.wait_for(lambda: self._bounded.is_empty, deadline.left_s())


def _write(fd: int, text: bytes) -> None:
    while text:
        try:
            text = text[os.write(fd, text) :]
        except BlockingIOError:  # the script made it so
            wait_ready(fd, by=Deadline(None), is_to_write=True)
