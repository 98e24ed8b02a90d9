"""Blocks that are on their way, and the order in which they are asked for.

What other machines are asked for has a queue, and a limit, of its own. A request to another machine waits
for one of that machine's to the origin: if both had the same limit, machines that want each other's blocks
could all wait for each other, and none would have a request left for the origin.
"""

import contextlib
import threading
from collections import deque
from collections.abc import Callable

from stoker.clock import Deadline
from stoker.storage.origins import UNKNOWN, Source
from stoker.storage.reading.file import File

_GUESS_NBYTES = 100_000  # of a file whose size is not known


class Fetch:
    """Blocks of a file that are on their way, in one request."""

    __slots__ = (
        "asked",
        "calls",
        "deadline",
        "end",
        "error",
        "file",
        "first",
        "found",
        "got",
        "has_come",
        "is_ahead",
        "is_settled",
        "num",
        "source",
        "start",
    )

    def __init__(
        self, file: File, first: int, num: int, is_ahead: bool, source: Source, is_settled: bool
    ) -> None:
        """source: who is asked; is_settled: whoever is the blocks' home when its turn comes."""
        self.file, self.first, self.num, self.is_ahead = file, first, num, is_ahead
        self.source, self.is_settled = source, is_settled
        self.deadline: Deadline | None = None  # once somebody was asked
        self.has_come = threading.Event()
        self.calls: list[Callable[[], None]] = []
        self.error: Exception | None = None
        self.got: dict[int, bytes] = {}  # by number of the block
        self.start = first * file.block_nbytes
        end = self.start + num * file.block_nbytes
        self.end = end if file.nbytes == UNKNOWN else min(end, file.nbytes)
        self.asked = file.path, self.start, self.end, file.known, file.hint
        self.found: File | None = None  # what a file turned out to be whose size was not known

    @property
    def is_at_origin(self) -> bool:
        return self.source is self.file.origin

    @property
    def nbytes(self) -> int:
        return _GUESS_NBYTES if self.file.nbytes == UNKNOWN else self.end - self.start

    def subscribe(self, call: Callable[[], None]) -> None:
        """Have a function called once it has come, or failed."""
        self.calls.append(call)
        if self.has_come.is_set():
            self.call()

    def call(self) -> None:
        with contextlib.suppress(IndexError):
            while True:
                self.calls.pop()()

    def wait(self) -> None:
        """Wait until it has come. Raises what has failed it."""
        self.has_come.wait()
        if self.error is not None:
            raise self.error


class Queue:
    """Fetches that nobody was asked for yet. num_busy: GETs that are on their way."""

    def __init__(self, most: int) -> None:
        """most: GETs on their way at once."""
        self._most, self.num_busy = most, 0
        self.wanted: deque[Fetch] = deque()
        self.ahead: deque[Fetch] = deque()

    def hurry(self, fetch: Fetch) -> bool:
        """Have a fetch go before those ahead, for somebody waits for it now. Returns whether it was one."""
        if fetch not in self.ahead:  # it has begun
            return False
        self.ahead.remove(fetch)
        self.wanted.append(fetch)
        return True

    def take(self) -> Fetch | None:
        """Return whose turn it is: what somebody waits for goes first. None if nobody's."""
        queue = self.wanted or self.ahead
        return queue.popleft() if queue and self.num_busy < self._most else None
