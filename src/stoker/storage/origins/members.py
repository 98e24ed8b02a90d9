"""Knows where in an archive its members lie that were packed as they are: those are read as files are.

The formats: APPNOTE 6.3.10, 4.3.7 (zip), POSIX.1-2017, pax, "ustar Interchange Format" (tar); what Python's
zipfile and tarfile have read of them is taken.
Pure.
"""

import re
import struct
import tarfile
import zipfile
from bisect import bisect_right
from collections.abc import Iterable
from typing import NamedTuple

# Signature, version, flags, method, time, date, crc, two sizes, lengths of name and of what is extra.
_LOCAL = struct.Struct("<4s5H3I2H")
HEAD_NBYTES = _LOCAL.size
_IS_ENCRYPTED = 1


class Member(NamedTuple):
    """start, stop: of what the archive has of it, in bytes; nbytes: of it; crc: None if there is none;
    has_head: it begins with a header of unknown length."""

    start: int
    stop: int
    nbytes: int
    crc: int | None
    has_head: bool


def of_zip(archive: zipfile.ZipFile) -> dict[str, Member]:
    """Return the members of a zip that are not compressed."""
    starts = sorted({each.header_offset for each in archive.infolist()})
    starts.append(archive.start_dir)
    found = {}
    for path, each in archive.NameToInfo.items():
        is_plain = each.compress_type == zipfile.ZIP_STORED and each.compress_size == each.file_size
        if is_plain and not each.is_dir() and not each.flag_bits & _IS_ENCRYPTED:
            stop = starts[bisect_right(starts, each.header_offset)]
            found[path] = Member(each.header_offset, stop, each.file_size, each.CRC, True)
    return found


def of_tar(archive: Iterable[tarfile.TarInfo]) -> dict[str, Member]:
    """Return the regular files of a tar that is not compressed."""
    found: dict[str, Member] = {}
    for each in archive:
        path = re.sub("/+", "/", each.name.rstrip("/"))
        if each.isreg() and not each.issparse():
            stop = each.offset_data + each.size
            found[path] = Member(each.offset_data, stop, each.size, None, False)
        else:  # the last one of a name counts
            found.pop(path, None)
    return found


def head_nbytes(head: bytes | bytearray) -> int:
    """Return how long a header is that begins so. Raises ValueError if it is none."""
    if len(head) < HEAD_NBYTES or head[:4] != b"PK\3\4":
        raise ValueError("no member begins where the archive's list says")
    *_, name_nbytes, more_nbytes = _LOCAL.unpack_from(head)
    return HEAD_NBYTES + int(name_nbytes) + int(more_nbytes)
