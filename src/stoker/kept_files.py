"""Files of values in a folder that several runs share: names, slots that tell where a value lies, room.

    DIR/stoker-remembered-1/<run>-<seat>.<kind>      values, one behind the other
                            <run>-<seat>.<kind index> of each a slot
                            <name>.<random>.part     a file while it is written

A run writes files of its own and reads those of earlier ones, so that runs that share a folder need
no lock; a file that another run removes is a miss. All kinds share the room that the folder may have.
Promise: a slot is not believed without its checksum. Nothing is read or written but regular files of
this user, in a folder of this user, to which nobody else may write; no link is followed, nothing waits.
Whoever may write to DIR itself can take the folder away, and no more: it is looked at in each step.
"""

import contextlib
import errno
import hashlib
import itertools
import os
import re
import secrets
import stat
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from stoker.clock import wall_ns

NAME = "stoker-remembered-1"
KEY_NBYTES = 16
SLOT_NBYTES = 48
BODY = struct.Struct(
    "<16sQIIII"
)  # key, offset, nbytes, microseconds, maker's pid, value's checksum
CHECK_AT = BODY.size  # 40: eight bytes of checksum
assert CHECK_AT + 8 == SLOT_NBYTES
_MAX_FILES = 1 << 16  # 0.2 s to look at; 2,000 runs of 16 workers
_NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL
_RANDOM_NBYTES = 12
_RUN = re.compile(r"[0-9a-f]{12,24}-[0-9]{1,2}")  # and seat
_PART = re.compile(r".+\.[0-9a-f]{24}\.part")
_LEFT_NS = 3600 * 10**9  # the longest part takes seconds: after so long it has lost its writer


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


class KeptFolder:
    """DIR/stoker-remembered-1. Raises OSError where it cannot be made, or is not safe."""

    def __init__(self, path: Path, max_nbytes: int) -> None:
        """max_nbytes: that it may hold, and so the most that is read of a file."""
        self.path, self.max_nbytes = path / NAME, max_nbytes
        self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.files()

    @contextlib.contextmanager
    def _opened(self) -> Iterator[int]:
        """Open the folder for one step: a descriptor that is held a script might close. Raises OSError."""
        folder = _open_own(str(self.path), os.O_RDONLY | os.O_DIRECTORY)
        try:
            yield folder
        finally:
            os.close(folder)

    def files(self) -> dict[str, os.stat_result]:
        """Return what lies in the folder. Raises OSError."""
        found = {}
        with self._opened() as folder, os.scandir(folder) as names:
            for each in itertools.islice(names, _MAX_FILES + 1):
                with contextlib.suppress(FileNotFoundError):  # another run has just removed it
                    found[each.name] = each.stat(follow_symlinks=False)
        if len(found) > _MAX_FILES:
            raise OSError(errno.EMFILE, f"{NAME} holds more than {_MAX_FILES:,} files; remove it")
        return found

    def used_nbytes(self) -> int:
        """Add up all files, of every kind. Raises OSError."""
        return sum(told.st_size for told in self.files().values())

    def open(self, name: str, flags: int = os.O_RDONLY) -> int:
        """Return a file's descriptor. Raises OSError, also of what is no regular file of one's own."""
        with self._opened() as folder:
            return _open_own(name, flags, folder)

    def read(self, name: str, max_nbytes: int) -> bytes:
        """Return a file's bytes, so many at most; none if there is no such file."""
        try:
            with os.fdopen(self.open(name), "rb") as file:
                nbytes = os.fstat(file.fileno()).st_size
                return file.read(min(nbytes, max_nbytes, self.max_nbytes))
        except OSError:
            return b""

    def has(self, fd: int, entry: Entry) -> bool:
        """Whether a value may lie there in a file."""
        end = entry.offset + entry.nbytes
        return entry.nbytes <= self.max_nbytes and end <= os.fstat(fd).st_size

    def write(self, name: str, pieces: Iterable[bytes]) -> None:
        """Make a file, or replace it at once, so that nobody reads half of it. Raises OSError."""
        part = f"{name}.{secrets.token_hex(_RANDOM_NBYTES)}.part"
        try:
            with os.fdopen(self.open(part, _NEW), "wb") as file:
                file.writelines(pieces)
            with self._opened() as folder:
                os.replace(part, name, src_dir_fd=folder, dst_dir_fd=folder)
        except OSError:
            self.remove(part)
            raise

    def remove(self, *names: str) -> None:
        """Remove files; what cannot be removed stays."""
        with contextlib.suppress(OSError), self._opened() as folder:
            for name in names:
                with contextlib.suppress(OSError):
                    os.unlink(name, dir_fd=folder)

    def remove_torn(self) -> None:
        """Remove parts of runs that were killed while they wrote. Raises OSError."""
        since_ns = wall_ns() - _LEFT_NS
        files = self.files().items()
        parts = (name for name, told in files if told.st_mtime_ns < since_ns)
        self.remove(*filter(_PART.fullmatch, parts))

    def note_use(self, name: str) -> None:
        with contextlib.suppress(OSError), self._opened() as folder:  # read-only: it looks unused
            os.utime(name, dir_fd=folder, follow_symlinks=False)


class KeptFiles(KeptFolder):
    """The pairs of files of one kind."""

    def __init__(self, path: Path, max_nbytes: int, values: str, index: str) -> None:
        """values, index: suffixes of the kind's files."""
        super().__init__(path, max_nbytes)
        self.run = secrets.token_hex(_RANDOM_NBYTES)
        self._values, self._index = values, index

    def name_of(self, seat: int) -> str:
        """Name the files that a seat of this run writes to."""
        return f"{self.run}-{seat}"

    def earlier(self, num: int, max_nbytes: int) -> Iterator[tuple[str, bytes]]:
        """Iterate other runs' files, those that were used last first: their names, and slots as an
        index takes them, some of them damaged. num, max_nbytes: at most. Raises OSError."""
        used_s = {
            name.removesuffix(self._index): told.st_mtime
            for name, told in self.files().items()
            if name.endswith(self._index) and not name.startswith(self.run)
        }
        names = sorted(filter(_RUN.fullmatch, used_s), key=lambda name: -used_s[name])
        for name in names[:num]:
            slots = self.read(name + self._index, max_nbytes)
            max_nbytes -= len(slots)
            yield name, slots

    def open_new(self, name: str, is_kept: bool) -> tuple[int, int]:
        """Return descriptors of a pair of files of this run: values, index. Without a name, if they
        are not to be kept: then they are gone with the last process. Raises OSError."""
        found: list[int] = []
        try:
            for suffix in (self._values, self._index):
                found.append(self._open_seats_file(name + suffix))
                if not is_kept:
                    with self._opened() as folder:
                        os.unlink(name + suffix, dir_fd=folder)
        except OSError:
            for fd in found:
                os.close(fd)
            raise
        return found[0], found[1]

    def _open_seats_file(self, name: str) -> int:
        try:
            return self.open(name, _NEW)
        except FileExistsError:  # the seat's worker before has made it
            return self.open(name, os.O_RDWR)

    def open_values(self, name: str) -> int | None:
        """Return a descriptor to read values by, and note that they are used; None: they are gone."""
        try:
            found = self.open(name + self._values)
        except OSError:
            return None
        self.note_use(name + self._index)
        return found

    def remove_pair(self, name: str) -> None:
        self.remove(name + self._index, name + self._values)


def _open_own(path: str, flags: int, folder: int | None = None) -> int:
    """Open what is this user's alone: a regular file, or a folder where that is asked for. Raises
    OSError. folder: a descriptor of that in which it lies."""
    safe = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    fd = os.open(path, flags | safe, 0o600, dir_fd=folder)
    why = _why_unsafe(os.fstat(fd), is_folder=bool(flags & os.O_DIRECTORY))
    if why:
        os.close(fd)
        raise PermissionError(errno.EPERM, f"{Path(path).name} {why}")
    return fd


def _why_unsafe(told: os.stat_result, is_folder: bool) -> str:
    if not is_folder and not stat.S_ISREG(told.st_mode):
        return "is no file"
    if told.st_uid != os.geteuid():
        return "belongs to another user; remove it, or give another folder"
    if told.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return "may be written to by other users; remove it, or give another folder"
    return ""


def write_at(fd: int, memory: memoryview, at: int) -> None:
    """Raises OSError, also if there is no room for all of it."""
    while memory.nbytes:
        num = os.pwrite(fd, memory, at)
        memory, at = memory[num:], at + num
