"""Blocks that are on their way, and the order in which they are asked for.

What other machines are asked for has a queue, and a limit, of its own. A request to another machine mostly
waits for one of that machine's to the origin: if both had the same limit, machines that want each other's
blocks could all wait for each other, and none would have a request left for the origin.
"""

import contextlib
import threading
from collections import deque
from collections.abc import Callable

from stoker.storage.origins import UNKNOWN, Source
from stoker.storage.reading.file import File

_GUESS_NBYTES = 100_000  # of a file whose size is not known


class Fetch:
    """Blocks of a file that are on their way, in one request."""

    __slots__ = (
        "asked",
        "calls",
        "end",
        "error",
        "file",
        "first",
        "found",
        "got",
        "has_come",
        "is_ahead",
        "is_settled",
        "is_wanted",
        "num",
        "source",
        "start",
    )

    def __init__(
        self, file: File, first: int, num: int, is_ahead: bool, source: Source, is_settled: bool
    ) -> None:
        """source: who is asked; is_settled: even if another machine is the blocks' home by then."""
        self.file, self.first, self.num, self.is_ahead = file, first, num, is_ahead
        self.is_wanted = not is_ahead  # somebody waits for it
        self.source, self.is_settled = source, is_settled
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
    """Fetches that nobody was asked for yet. num_busy: GETs that are on their way; counted by the getter's
    thread alone."""

    def __init__(self, most: int) -> None:
        """most: GETs on their way at once."""
        self._most, self.num_busy = most, 0
        self._wanted: deque[Fetch] = deque()
        self._ahead: deque[Fetch] = deque()

    def put(self, fetch: Fetch, is_next: bool = False) -> None:
        """Add a fetch behind those of its kind, or before them."""
        queue = self._wanted if fetch.is_wanted else self._ahead
        if is_next:
            queue.appendleft(fetch)
        else:
            queue.append(fetch)

    def hurry(self, fetch: Fetch) -> bool:
        """Have a fetch go before those ahead, for somebody waits for it now. Returns whether it was one."""
        if fetch.is_wanted or fetch not in self._ahead:  # it has begun
            return False
        self._ahead.remove(fetch)
        fetch.is_wanted = True
        self._wanted.append(fetch)
        return True

    @property
    def is_waited_for(self) -> bool:
        return bool(self._wanted)

    def has_turn(self) -> bool:
        """Whether `take` returns one now."""
        return self.num_busy < self._most and bool(self._wanted or self._ahead)

    def take(self) -> Fetch | None:
        """Return whose turn it is: what somebody waits for goes first. None if nobody's."""
        return (self._wanted or self._ahead).popleft() if self.has_turn() else None
