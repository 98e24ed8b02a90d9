"""The folder of a store on disk: which files it has, and what they tell.

    DIR/stoker-remembered-1/<run>-<seat>.values    see kept_files.py
                            <run>-<seat>.index
                            <digest>.place         what was learnt of a dataset

Promise: nothing that is read here is run or believed without its checksum.
"""

import contextlib
import os
import re
import zlib
from pathlib import Path

from stoker.clock import wall_ns
from stoker.kept_files import KeptFiles, used_s
from stoker.memory.phases import EMPTY, Counts
from stoker.memory.store.rows import pack_counts, unpack_counts

_VALUES, _INDEX, _PLACE = ".values", ".index", ".place"
_PART = re.compile(r"[0-9a-f]{32}\.[0-9a-f]{12}-[0-9]+")  # of a place, while it is being written
_CRC_NBYTES = 4
_MAX_PLACES = 1024  # 200 bytes each; each edit of a dataset is another place: those used last stay
_LEFT_S = 3600  # a part is written in a millisecond: after so long it has lost its writer


class Folder(KeptFiles):
    """Raises OSError where it cannot be made."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, _VALUES, _INDEX)
        with contextlib.suppress(OSError):  # another user's
            self._prune()

    def learnt(self, digest: bytes) -> Counts | None:
        """Return what an earlier run learnt of a dataset in this very state."""
        try:
            told = self.at(digest.hex(), _PLACE).read_bytes()
        except OSError:
            return None
        numbers, crc = told[:-_CRC_NBYTES], told[-_CRC_NBYTES:]
        if crc != _crc(numbers):
            return None
        with contextlib.suppress(OSError):
            os.utime(self.at(digest.hex(), _PLACE))
        counts = unpack_counts(numbers)
        return None if counts == EMPTY else counts

    def note_learnt(self, digest: bytes, counts: Counts) -> None:
        """Tell other runs; that a value differed is never taken back. Raises OSError."""
        earlier = self.learnt(digest)
        if earlier is not None and earlier.num_differed and not counts.num_differed:
            return
        numbers = pack_counts(counts)
        path = self.at(digest.hex(), _PLACE)
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
        places = sorted((path for path in files if path.suffix == _PLACE), key=used_s)
        since_s = wall_ns() / 1e9 - _LEFT_S
        parts = [path for path in files if _PART.fullmatch(path.name)]
        for path in [*places[:-_MAX_PLACES], *(each for each in parts if used_s(each) < since_s)]:
            path.unlink(missing_ok=True)


def _crc(data: bytes) -> bytes:
    return zlib.crc32(data).to_bytes(_CRC_NBYTES, "little")
