"""Files of values in a folder that several runs share: names, slots that tell where a value lies, room.

    DIR/stoker-remembered-1/<run>-<seat>.<kind>      values, one behind the other
                            <run>-<seat>.<kind index> of each a slot

A run writes files of its own and reads those of earlier ones, so that runs that share a folder need
no lock; a file that another run removes is a miss. All kinds share the room that the folder may have.
Promise: a slot is not believed without its checksum. Standard library only.
"""

import contextlib
import hashlib
import os
import struct
import uuid
from pathlib import Path
from typing import NamedTuple

NAME = "stoker-remembered-1"
KEY_NBYTES = 16
SLOT_NBYTES = 48
BODY = struct.Struct(
    "<16sQIIII"
)  # key, offset, nbytes, microseconds, maker's pid, value's checksum
CHECK_AT = BODY.size  # 40: eight bytes of checksum
assert CHECK_AT + 8 == SLOT_NBYTES


class Entry(NamedTuple):
    """Where a value lies. made_us: the microseconds that it took to make; pid: of who made it;
    check: the value's checksum."""

    offset: int
    nbytes: int
    made_us: int
    pid: int
    check: int


def slot_of(key: bytes, entry: Entry) -> bytes:
    body = BODY.pack(key, *entry)
    return body + slot_checksum(body)


def read_slot(slot: bytes) -> tuple[bytes, Entry] | None:
    """Return what a slot holds; None if it is damaged."""
    if slot[CHECK_AT:] != slot_checksum(slot[:CHECK_AT]):
        return None
    key, *rest = BODY.unpack_from(slot)
    return key, Entry(*rest)


def slot_checksum(body: bytes) -> bytes:
    return hashlib.blake2b(body, digest_size=8).digest()


class KeptFiles:
    """The pairs of files of one kind. Raises OSError where the folder cannot be made."""

    def __init__(self, path: Path, values: str, index: str) -> None:
        """values, index: suffixes of the kind's files."""
        self.path = path / NAME
        self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.run = uuid.uuid4().hex[:12]
        self._values, self._index = values, index

    def name_of(self, seat: int) -> str:
        """Name the files that a seat of this run writes to."""
        return f"{self.run}-{seat}"

    def earlier(self) -> list[str]:
        """Name the files of other runs, those that were used last first."""
        found = {path.stem: used_s(path) for path in self.path.glob(f"*{self._index}")}
        own = [name for name in found if name.startswith(self.run)]
        return sorted(found.keys() - own, key=lambda name: -found[name])

    def slots_of(self, name: str) -> bytes:
        """Return what tells of a file's values, as an index takes it; some of it may be damaged."""
        try:
            return self.at(name, self._index).read_bytes()
        except OSError:
            return b""

    def used_nbytes(self) -> int:
        """Add up all files, of every kind. Raises OSError."""
        with os.scandir(self.path) as files:
            return sum(map(_nbytes_of, files))

    def open_new(self, name: str, is_kept: bool) -> tuple[int, int]:
        """Return descriptors of a new pair of files: values, index. Without a name, if they are not
        to be kept: then they are gone with the last process. Raises OSError."""
        found: list[int] = []
        try:
            for suffix in (self._values, self._index):
                path = self.at(name, suffix)
                found.append(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
                if not is_kept:
                    path.unlink()
        except OSError:
            for fd in found:
                os.close(fd)
            raise
        return found[0], found[1]

    def open_values(self, name: str) -> int | None:
        """Return a descriptor to read values by, and note that they are used; None: they are gone."""
        try:
            found = os.open(self.at(name, self._values), os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return None
        with contextlib.suppress(OSError):  # another user's, or read-only: then it looks unused
            os.utime(self.at(name, self._index))
        return found

    def remove(self, name: str) -> None:
        """Remove a pair of files; what cannot be removed stays."""
        for suffix in (self._index, self._values):
            with contextlib.suppress(OSError):
                self.at(name, suffix).unlink()

    def at(self, name: str, suffix: str) -> Path:
        return self.path / (name + suffix)


def used_s(path: Path) -> float:
    """Return when a file was used last; 0 if it is gone."""
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def write_at(fd: int, memory: memoryview, at: int) -> None:
    """Raises OSError, also if there is no room for all of it."""
    while memory.nbytes:
        num = os.pwrite(fd, memory, at)
        memory, at = memory[num:], at + num


def _nbytes_of(file: os.DirEntry[str]) -> int:
    try:
        return file.stat().st_size
    except OSError:  # another run has just removed it
        return 0
