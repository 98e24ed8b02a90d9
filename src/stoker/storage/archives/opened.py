"""An archive as a file that can be read and sought, for zipfile, tarfile and what decompresses."""

import io
import os
from collections.abc import Callable
from typing import Any

from stoker.clock import Deadline
from stoker.storage.origins import UNKNOWN, Denied, Entry, Origin, Piece
from stoker.storage.reading.retry import LIMIT_S, patiently

# Of one request: 0.5 ms of 1 Gbit/s, little beside a round trip; and what blocks.py asks for at once.
LEAST_NBYTES, MOST_NBYTES = 64 << 10, 4 << 20


class Opened(io.RawIOBase):
    """A file of an origin, as it is known. Raises OriginError where it cannot be read. Transient errors are
    tried again in here: a decompressor would go on after one, with a hole.

    A request that begins where the last one ended is for four times as much, up to 4 MiB, or as much as is
    read at once.
    """

    def __init__(
        self, origin: Origin, name: str, known: Entry | None, pause: Callable[[float], object]
    ) -> None:
        """known: None if that is to be found out; pause: waits so many seconds."""
        self._origin, self._name, self._pause = origin, name, pause
        self._at = self._start = 0
        self._here, self._most_nbytes = memoryview(b""), LEAST_NBYTES
        self.known = Entry(False, UNKNOWN)
        if known is None:
            piece = self._ask(0, LEAST_NBYTES)
            self.known, self._here = piece.known, memoryview(piece.body)
            if self.known.nbytes == UNKNOWN:
                raise Denied("the server does not tell the size of this archive")
            if piece.is_cut:
                raise Denied("the server knows no ranges, which an archive needs")
        else:
            self.known = known

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._at = offset + (0, self._at, self.known.nbytes)[whence]
        return self._at

    def readinto(self, room: Any) -> int:
        if not self._start <= self._at < self._start + len(self._here):
            self._fetch(len(room))
        begin = self._at - self._start
        piece = self._here[begin : begin + len(room)] if begin >= 0 else self._here[:0]
        room[: len(piece)] = piece
        self._at += len(piece)
        return len(piece)

    def _fetch(self, nbytes: int) -> None:
        end = self._start + len(self._here)
        goes_on = end <= self._at <= end + LEAST_NBYTES
        self._most_nbytes = min(4 * self._most_nbytes, MOST_NBYTES) if goes_on else LEAST_NBYTES
        stop = min(self._at + max(nbytes, self._most_nbytes), self.known.nbytes)
        if self._at < stop:
            piece = self._ask(self._at, stop)
            self._start, self._here = self._at, memoryview(piece.body)

    def _ask(self, start: int, stop: int) -> Piece:
        return patiently(
            lambda: self._origin.read(self._name, start, stop, self.known),
            Deadline(LIMIT_S),
            self._pause,
            lambda error: None,
        )
