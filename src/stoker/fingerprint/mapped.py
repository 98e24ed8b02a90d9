"""Identifies which bytes of which file are mapped, so that another machine can map them itself.

Promise: a `FileRange` is the same if a file looks the same: its size, when it was changed, and both
ends of what is mapped. A mapping has none if it may be written through, if its file was replaced or
deleted since, or if it has no file. A `Stamp` tells more, to this machine alone: of the middle too.
Limit: what another process writes through a mapping of its own shows in a file's times some time later.
"""

import hashlib
import mmap
import os
import sys
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

END_NBYTES = 64 << 10  # at either end, to be compared


class FileRange(NamedTuple):
    """A range of a mapped file: `nbytes` from `start` on, of a file that has `file_nbytes`."""

    path: str
    start: int
    nbytes: int
    file_nbytes: int
    changed_ns: int
    ends: str


Stamp = tuple[int, int, int, int, int]
"""A file's size, times of change of content and of status, inode and device."""


class NotTheSame(Exception):
    """Raised if a file is not here what it was elsewhere, or is missing here."""


def mapping_of(array: Any) -> mmap.mmap | None:
    """Return the mapping that a numpy array views, as of a token file; None if it views none."""
    base = array
    while base is not None:
        if isinstance(base, mmap.mmap):
            return base
        base = base.obj if isinstance(base, memoryview) else getattr(base, "base", None)
    return None


def address_of(mapping: mmap.mmap) -> int:
    """Return where a mapping lies in memory. Raises ValueError if it is closed."""
    shown = sys.modules["numpy"].frombuffer(mapping, "u1")
    return int(shown.__array_interface__["data"][0])


_known: "weakref.WeakKeyDictionary[mmap.mmap, tuple[FileRange, Stamp] | None]"
_known = weakref.WeakKeyDictionary()


def file_of(mapping: mmap.mmap) -> FileRange | None:
    """Return a mapping's file range; None if it has none (see the module), and then for good."""
    known = _identified(mapping)
    return None if known is None else known[0]


def stamp_of(mapping: mmap.mmap) -> Stamp | None:
    """Return by what a mapping's file is known on this machine; None if it has no file, or one that
    others may write unseen."""
    known = _identified(mapping)
    return known[1] if known is not None and is_dated(known[0].path) else None


def is_dated(path: str) -> bool:
    """Whether a file's times tell that it was written through a mapping: those in memory have no such."""
    return not path.startswith("/dev/shm/")


def _identified(mapping: mmap.mmap) -> tuple[FileRange, Stamp] | None:
    known = _known.get(mapping)
    if mapping not in _known or (known is not None and _stamp_at(known[0].path) != known[1]):
        try:
            _known[mapping] = _found(address_of(mapping), len(mapping))
        except (OSError, ValueError, KeyError):
            _known[mapping] = None
    return _known[mapping]


def _stamp_at(path: str) -> Stamp | None:
    try:
        found = Path(path).stat()
    except OSError:
        return None
    return found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino, found.st_dev


def _rows() -> Iterator[tuple[int, int, list[str]]]:
    """Iterate what is mapped: first address, end, the other columns. Source: proc(5), /proc/pid/maps."""
    for row in Path("/proc/self/maps").read_text(errors="surrogateescape").splitlines():
        place, *columns = row.split(maxsplit=5)
        first, end = (int(text, 16) for text in place.split("-"))
        yield first, end, columns


def not_private() -> list[tuple[int, int]]:
    """Return the ranges of memory, in order, that are of files or that other processes may share."""
    return [
        (first, end)
        for first, end, (permissions, _, _, inode, *_) in _rows()
        if permissions[3] == "s" or inode != "0"
    ]


def _found(address: int, nbytes: int) -> tuple[FileRange, Stamp] | None:
    """Find the file that is mapped at an address."""
    for first, end, (permissions, start, _, inode, *path) in _rows():
        if not first <= address < end:
            continue
        if not path or "w" in permissions or address + nbytes > end:
            return None
        stamp = _stamp_at(path[0])
        found = look(path[0], int(start, 16) + address - first, nbytes)
        return (found, stamp) if stamp is not None and stamp[3] == int(inode) else None
    return None


def look(path: str, start: int, nbytes: int) -> FileRange:
    """Return a range of the file that is there now. Raises OSError."""
    with Path(path).open("rb") as file:
        status = os.fstat(file.fileno())
        ends = hashlib.blake2b(digest_size=16)
        for place in (start, max(start, start + nbytes - END_NBYTES)):
            ends.update(os.pread(file.fileno(), min(END_NBYTES, nbytes), place))
    return FileRange(path, start, nbytes, status.st_size, status.st_mtime_ns, ends.hexdigest())


def opened(file: FileRange) -> mmap.mmap:
    """Map the same bytes here. Raises NotTheSame."""
    try:
        found = look(file.path, file.start, file.nbytes)
        if found != file:
            raise NotTheSame(
                f"{file.path} is not there what it is at the trainer: {_how(file, found)}"
            )
        with Path(file.path).open("rb") as opened_file:
            return mmap.mmap(
                opened_file.fileno(), file.nbytes, access=mmap.ACCESS_READ, offset=file.start
            )
    except OSError as error:
        raise NotTheSame(f"{file.path} cannot be mapped there: {error.strerror}") from None


def _how(theirs: FileRange, ours: FileRange) -> str:
    if theirs.file_nbytes != ours.file_nbytes:
        return f"it has {ours.file_nbytes:,} bytes, not {theirs.file_nbytes:,}"
    if theirs.ends != ours.ends:
        return "its content differs"
    return "it was changed at another time"
