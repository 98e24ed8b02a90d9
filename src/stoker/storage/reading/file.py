"""Names a file of an origin as it was listed, and where it is cut into blocks."""

import secrets
from hashlib import blake2b
from typing import NamedTuple

from stoker.storage.origins import UNKNOWN, Entry, Origin

WHOLE_NBYTES = 1 << 20  # a file up to so large is one block
# Of larger ones: what a read of one page out of a mapping costs, against requests an epoch.
BLOCK_NBYTES = 256 << 10
MERGED_BLOCKS = 16  # of one request: 4 MiB
# In the digest of a file that has neither tag nor time: another run's bytes may be others.
_THIS_RUN = secrets.token_hex(8)


class File(NamedTuple):
    """A file of an origin, as it was listed. digest: names these very bytes; hint: what it was in an
    earlier run, where `known` tells no size."""

    origin: Origin
    path: str
    known: Entry
    digest: bytes
    hint: Entry | None = None

    @property
    def nbytes(self) -> int:
        return self.known.nbytes

    @property
    def num_blocks(self) -> int:
        return 1 if self.nbytes == UNKNOWN else -(-self.nbytes // self.block_nbytes)

    @property
    def block_nbytes(self) -> int:
        return WHOLE_NBYTES if self.nbytes <= WHOLE_NBYTES else BLOCK_NBYTES


def file_of(origin: Origin, path: str, known: Entry) -> File:
    tag = known.tag or ("" if known.mtime_ns else _THIS_RUN)
    text = "\0".join((origin.identity, path, tag, str(known.nbytes), str(known.mtime_ns)))
    digest = blake2b(text.encode(errors="surrogateescape"), digest_size=16).digest()
    return File(origin, path, known, digest)
