"""Lists the members of an archive: which folders there are, and where each file's bytes lie.

The formats: APPNOTE 6.3.10, 4.3.7 (zip), POSIX.1-2017, pax, "ustar Interchange Format" (tar); what Python's
zipfile and tarfile have read of them is taken.
Promise: a member is where unpacking would put it, so `./a`, `/a` and `a` are one name, and the last one of a
name counts; a link is what it leads to. What would be outside, leads nowhere, or is no file, is not there.
"""

import stat
import struct
import tarfile
import zipfile
from bisect import bisect_right
from collections.abc import Iterable
from typing import NamedTuple, cast

from stoker.storage.origins import Entry

# Signature, version, flags, method, time, date, crc, two sizes, lengths of name and of what is extra.
_LOCAL = struct.Struct("<4s5H3I2H")
HEAD_NBYTES = _LOCAL.size
# A header with the longest name and the longest extra field, and a data descriptor behind the bytes.
_MOST_BESIDE_NBYTES = HEAD_NBYTES + 2 * 0xFFFF + 24
_MAX_LINKS = 40  # of one path; as Linux has it


class Member(NamedTuple):
    """start, stop: of what the archive has of a file; nbytes: of the file; crc: None if there is none;
    has_head: it begins with a header; packed: how it is compressed, None if it is not; pieces: of a file
    with holes, offset and bytes of what is between them, which the archive has one behind the other."""

    start: int
    stop: int
    nbytes: int
    crc: int | None = None
    has_head: bool = False
    packed: zipfile.ZipInfo | None = None
    mtime_ns: int = 0
    pieces: tuple[tuple[int, int], ...] = ()


class Index:
    """All paths are as unpacking would make them; "" is the archive itself."""

    def __init__(self) -> None:
        self.folders: dict[str, set[str]] = {"": set()}  # names in each
        self._files: dict[str, Member] = {}
        self._links: dict[str, str] = {}  # to other paths

    def add(self, raw: str, member: Member | None) -> None:
        """Add a file, or a folder."""
        path = self._place_of(raw)
        if path is not None:
            self._begin(path)
            if member is not None:
                self._files[path] = member
            elif path not in self.folders:
                self.folders[path] = set()

    def add_link(self, raw: str, target: str, *, is_hard: bool = False) -> None:
        """Add a link. target: as the archive has it."""
        path = self._place_of(raw)
        if path:
            self._begin(path)
            to = target if is_hard else f"{path.rpartition('/')[0]}/{target}"
            if is_hard or not target.startswith("/"):  # which leads out
                self._links[path] = to

    def _place_of(self, raw: str) -> str | None:
        """Return where unpacking puts a name, through the links that are there by then; None if outside."""
        path = normal(raw)
        if not path or not self._links:
            return path
        folder, _, name = path.rpartition("/")
        real = self.real(folder)
        return None if real is None else f"{real}/{name}".lstrip("/")

    def _begin(self, path: str) -> None:
        self._files.pop(path, None)
        self._links.pop(path, None)
        while path:
            folder, _, name = path.rpartition("/")
            names = self.folders.setdefault(folder, set())
            if name in names:
                return
            names.add(name)
            path = folder

    def real(self, path: str) -> str | None:
        """Return a path with no link in it; None if one leads nowhere."""
        if not self._links:
            return path
        left, done, num_links = path.split("/")[::-1], list[str](), 0
        while left:
            part = left.pop()
            if part in ("", "."):
                continue
            if part == "..":
                if not done:
                    return None
                done.pop()
                continue
            done.append(part)
            target = self._links.get("/".join(done))
            if target is not None:
                num_links += 1
                if num_links > _MAX_LINKS:
                    return None
                done = []
                left += target.split("/")[::-1]
        return "/".join(done)

    def member(self, path: str) -> Member | None:
        """Return a file's."""
        real = self.real(path)
        return None if real is None or real in self.folders else self._files.get(real)

    def entry(self, path: str, tag: str) -> Entry | None:
        """Return what a path is. tag: of the archive."""
        real = self.real(path)
        if real is None:
            return None
        if real in self.folders:
            return Entry(True)
        member = self._files.get(real)
        if member is None:
            return None
        return Entry(False, member.nbytes, member.mtime_ns if tag else 0, tag)


def normal(raw: str) -> str | None:
    """Return where unpacking puts a name; None if that is outside."""
    parts = [part for part in raw.split("/") if part not in ("", ".")]
    return None if ".." in parts else "/".join(parts)


def index_of_zip(archive: zipfile.ZipFile) -> Index:
    """Raises what zipfile does."""
    index = Index()
    starts = sorted({each.header_offset for each in archive.infolist()})
    starts.append(archive.start_dir)
    for each in archive.infolist():
        if each.is_dir():
            index.add(each.filename, None)
            continue
        mode = each.external_attr >> 16
        if stat.S_ISLNK(mode):
            index.add_link(each.filename, archive.read(each).decode(errors="surrogateescape"))
            continue
        stop = starts[bisect_right(starts, each.header_offset)]
        stop = min(stop, each.header_offset + each.compress_size + _MOST_BESIDE_NBYTES)
        is_plain = each.compress_type == zipfile.ZIP_STORED and not each.flag_bits & 1  # encrypted
        member = Member(
            each.header_offset, stop, each.file_size, each.CRC, True, None if is_plain else each
        )
        index.add(each.filename, member)
    return index


def index_of_tar(archive: Iterable[tarfile.TarInfo]) -> Index:
    """Raises what tarfile does."""
    index = Index()
    for each in archive:
        if each.isdir():
            index.add(each.name, None)
        elif each.issym():
            index.add_link(each.name, each.linkname)
        elif each.islnk():
            index.add_link(each.name, each.linkname, is_hard=True)
        elif each.isreg():
            pieces = tuple(cast("list[tuple[int, int]]", each.sparse or ()))
            stop = each.offset_data + each.size
            mtime_ns = int(each.mtime * 1e9)
            index.add(
                each.name,
                Member(each.offset_data, stop, each.size, mtime_ns=mtime_ns, pieces=pieces),
            )
    return index


def head_nbytes(head: bytes | bytearray) -> int:
    """Return how long a member's header is that begins so. Raises ValueError if it is none."""
    if len(head) < HEAD_NBYTES or head[:4] != b"PK\3\4":
        raise ValueError("no member begins where the archive's list says")
    *_, name_nbytes, more_nbytes = _LOCAL.unpack_from(head)
    return HEAD_NBYTES + int(name_nbytes) + int(more_nbytes)
