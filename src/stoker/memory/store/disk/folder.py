"""The folder of a store on disk: which files it has, and what they tell.

    DIR/stoker-remembered-1/<run>-<seat>.values    see kept_files.py
                            <run>-<seat>.index
                            <digest>.place         what was learnt of a dataset

Promise: nothing that is read here is run or believed without its checksum.
"""

import zlib
from pathlib import Path

from stoker.kept_files import KeptFiles
from stoker.memory.phases import EMPTY, Counts
from stoker.memory.store.rows import pack_counts, unpack_counts

_VALUES, _INDEX, _PLACE = ".values", ".index", ".place"
_CRC_NBYTES = 4
_MAX_PLACE_NBYTES = 4096  # one has 200
_MAX_PLACES = 1024  # each edit of a dataset is another place: those used last stay


class Folder(KeptFiles):
    """Raises OSError where it cannot be made, or is not safe."""

    def __init__(self, path: Path, max_nbytes: int) -> None:
        super().__init__(path, max_nbytes, _VALUES, _INDEX)
        self.remove_torn()
        places = {name: told for name, told in self.files().items() if name.endswith(_PLACE)}
        self.remove(*sorted(places, key=lambda name: places[name].st_mtime)[:-_MAX_PLACES])

    def learnt(self, digest: bytes) -> Counts | None:
        """Return what an earlier run learnt of a dataset in this very state."""
        name = digest.hex() + _PLACE
        told = self.read(name, _MAX_PLACE_NBYTES)
        numbers, crc = told[:-_CRC_NBYTES], told[-_CRC_NBYTES:]
        if crc != _crc(numbers):
            return None
        self.note_use(name)
        counts = unpack_counts(numbers)
        return None if counts == EMPTY else counts

    def note_learnt(self, digest: bytes, counts: Counts) -> None:
        """Tell other runs; that a value differed is never taken back. Raises OSError."""
        earlier = self.learnt(digest)
        if earlier is not None and earlier.num_differed and not counts.num_differed:
            return
        numbers = pack_counts(counts)
        self.write(digest.hex() + _PLACE, [numbers, _crc(numbers)])


def _crc(data: bytes) -> bytes:
    return zlib.crc32(data).to_bytes(_CRC_NBYTES, "little")
