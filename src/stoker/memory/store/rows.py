"""Counts and findings about places, in shared memory: a row for each place and seat.

Promise: a row has one writer, the worker in its seat; all others add up the rows of a place. So
nothing waits for anything, and a writer that is killed leaves what it had counted. A row that is
read while it is written shows so by its checksum. Why a place is left alone may be said by another
machine's finding as well: whichever text stays, it is.
"""

import struct
import zlib

from stoker.memory.phases import EMPTY, Counts

MAX_PLACES = 64  # that a seat has rows for
_KEY = struct.Struct("<16s")
_NUMBERS = struct.Struct(f"<{len(EMPTY)}q")
_CHECK = struct.Struct("<q")
_NUM_TRIES = 3
_TEXT_NBYTES = 256
ROW_NBYTES = 768
_CHECK_AT = _KEY.size + _NUMBERS.size
_NAME_AT = _CHECK_AT + _CHECK.size
_ORIGIN_AT = _NAME_AT + 2 * _TEXT_NBYTES
assert _ORIGIN_AT + _KEY.size <= ROW_NBYTES


def pack_counts(counts: Counts) -> bytes:
    return _NUMBERS.pack(*counts)


def unpack_counts(numbers: bytes) -> Counts:
    """Return the counts; EMPTY if they are not as many."""
    return Counts(*_NUMBERS.unpack(numbers)) if len(numbers) == _NUMBERS.size else EMPTY


class Row:
    """A row of one place. memory: of ROW_NBYTES."""

    def __init__(self, memory: memoryview) -> None:
        self._memory = memory

    @property
    def key(self) -> bytes:
        return bytes(self._memory[: _KEY.size])

    def read(self) -> Counts:
        """Return the counts; EMPTY if they are torn."""
        for _ in range(_NUM_TRIES):
            data = bytes(self._memory[_KEY.size : _NAME_AT])
            numbers, check = data[: _NUMBERS.size], data[_NUMBERS.size :]
            if zlib.crc32(numbers) == _CHECK.unpack(check)[0]:
                return unpack_counts(numbers)
        return EMPTY

    def write(self, counts: Counts) -> None:
        numbers = pack_counts(counts)
        self._memory[_KEY.size : _NAME_AT] = numbers + _CHECK.pack(zlib.crc32(numbers))

    @property
    def name(self) -> str:
        return self._text(_NAME_AT)

    @property
    def why(self) -> str:
        """Why the place is left alone; empty if it is not."""
        return self._text(_NAME_AT + _TEXT_NBYTES)

    def say_why(self, why: str) -> None:
        self._put(_NAME_AT + _TEXT_NBYTES, why)

    @property
    def origin(self) -> bytes:
        """The state in which the place was found at first, for other runs; empty if not said."""
        told = bytes(self._memory[_ORIGIN_AT : _ORIGIN_AT + _KEY.size])
        return told if any(told) else b""

    def say_origin(self, state: bytes) -> None:
        self._memory[_ORIGIN_AT : _ORIGIN_AT + _KEY.size] = state

    def begin(self, key: bytes, name: str) -> None:
        """Take an unused row for a place; the key last, for it makes the row one that counts."""
        self.write(EMPTY)
        self._put(_NAME_AT, name)
        self.say_why("")
        self._memory[: _KEY.size] = key

    def _text(self, at: int) -> str:
        text = bytes(self._memory[at : at + _TEXT_NBYTES])
        return text.partition(b"\0")[0].decode(errors="replace")

    def _put(self, at: int, text: str) -> None:
        data = text.encode(errors="replace")[: _TEXT_NBYTES - 1]
        self._memory[at : at + _TEXT_NBYTES] = data.ljust(_TEXT_NBYTES, b"\0")
