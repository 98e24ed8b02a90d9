"""The folder of a store on disk: which files it has, and what they tell.

    DIR/stoker-remembered-1/<run>-<seat>.values    values, one behind the other
                            <run>-<seat>.index     of each a slot of index.py
                            <digest>.place         what was learnt of a dataset

A run writes files of its own and reads those of earlier ones, so that runs that share a folder need
no lock; a file that another run removes is a miss.
Promise: nothing that is read here is run or believed without its checksum.
"""

import contextlib
import os
import re
import uuid
import zlib
from pathlib import Path

from stoker.clock import wall_ns
from stoker.memory.phases import EMPTY, Counts
from stoker.memory.store.rows import pack_counts, unpack_counts

NAME = "stoker-remembered-1"
_VALUES, _INDEX, _PLACE = ".values", ".index", ".place"
_PART = re.compile(r"[0-9a-f]{32}\.[0-9a-f]{12}-[0-9]+")  # of a place, while it is being written
_CRC_NBYTES = 4
_MAX_PLACES = 1024  # 200 bytes each; each edit of a dataset is another place: those used last stay
_LEFT_S = 3600  # a part is written in a millisecond: after so long it has lost its writer


class Folder:
    """Raises OSError where it cannot be made."""

    def __init__(self, path: Path) -> None:
        self.path = path / NAME
        self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.run = uuid.uuid4().hex[:12]
        with contextlib.suppress(OSError):  # another user's
            self._prune()

    def name_of(self, seat: int) -> str:
        """Name the files that a seat of this run writes to."""
        return f"{self.run}-{seat}"

    def earlier(self) -> list[str]:
        """Name the files of other runs, those that were used last first."""
        found = {path.stem: _used_s(path) for path in self.path.glob(f"*{_INDEX}")}
        own = [name for name in found if name.startswith(self.run)]
        return sorted(found.keys() - own, key=lambda name: -found[name])

    def slots_of(self, name: str) -> bytes:
        """Return what tells of a file's values, as an index takes it; some of it may be damaged."""
        try:
            return self._at(name, _INDEX).read_bytes()
        except OSError:
            return b""

    def used_nbytes(self) -> int:
        """Add up all files. Raises OSError."""
        with os.scandir(self.path) as files:
            return sum(map(_nbytes_of, files))

    def open_new(self, name: str, is_kept: bool) -> tuple[int, int]:
        """Return descriptors of a new pair of files: values, index. Without a name, if they are not
        to be kept: then they are gone with the last process. Raises OSError."""
        found: list[int] = []
        try:
            for suffix in (_VALUES, _INDEX):
                path = self._at(name, suffix)
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
            found = os.open(self._at(name, _VALUES), os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return None
        with contextlib.suppress(OSError):  # another user's, or read-only: then it looks unused
            os.utime(self._at(name, _INDEX))
        return found

    def remove(self, name: str) -> None:
        """Remove a pair of files; what cannot be removed stays."""
        for suffix in (_INDEX, _VALUES):
            with contextlib.suppress(OSError):
                self._at(name, suffix).unlink()

    def learnt(self, digest: bytes) -> Counts | None:
        """Return what an earlier run learnt of a dataset in this very state."""
        try:
            told = self._at(digest.hex(), _PLACE).read_bytes()
        except OSError:
            return None
        numbers, crc = told[:-_CRC_NBYTES], told[-_CRC_NBYTES:]
        if crc != _crc(numbers):
            return None
        with contextlib.suppress(OSError):
            os.utime(self._at(digest.hex(), _PLACE))
        counts = unpack_counts(numbers)
        return None if counts == EMPTY else counts

    def note_learnt(self, digest: bytes, counts: Counts) -> None:
        """Tell other runs; that a value differed is never taken back. Raises OSError."""
        earlier = self.learnt(digest)
        if earlier is not None and earlier.num_differed and not counts.num_differed:
            return
        numbers = pack_counts(counts)
        path = self._at(digest.hex(), _PLACE)
        # All at once, for another process may be reading it.
        part = path.with_suffix(f".{self.run}-{os.getpid()}")
        try:
            part.write_bytes(numbers + _crc(numbers))
            part.replace(path)
        except OSError:
            part.unlink(missing_ok=True)
            raise

    def _prune(self) -> None:
        """Remove what was learnt of datasets that nobody has asked for longest. Raises OSError."""
        files = list(self.path.iterdir())
        places = sorted((path for path in files if path.suffix == _PLACE), key=_used_s)
        since_s = wall_ns() / 1e9 - _LEFT_S
        parts = [path for path in files if _PART.fullmatch(path.name)]
        for path in [*places[:-_MAX_PLACES], *(each for each in parts if _used_s(each) < since_s)]:
            path.unlink(missing_ok=True)

    def _at(self, name: str, suffix: str) -> Path:
        return self.path / (name + suffix)


def _nbytes_of(file: os.DirEntry[str]) -> int:
    try:
        return file.stat().st_size
    except OSError:  # another run has just removed it
        return 0


def _crc(data: bytes) -> bytes:
    return zlib.crc32(data).to_bytes(_CRC_NBYTES, "little")


def _used_s(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
