"""Origin of zip::, tar:: and libarchive:: URLs: members of one file, which lies in another origin.

That file is read as any other is: an archive that is replaced during the run is an error, never bytes of
another one from where the old one's index says. Its members have its tag, so that they, too, can be kept
from run to run and be taken from other machines.
"""

import io
import os
import threading
import zlib
from typing import Any
from urllib.parse import unquote

from stoker.storage.origins.generic import difference, entry_of, translated
from stoker.storage.origins.members import HEAD_NBYTES, Member, head_nbytes, of_tar, of_zip
from stoker.storage.origins.origin import (
    UNKNOWN,
    Again,
    Answer,
    Changed,
    Denied,
    Entry,
    Get,
    Missing,
    Origin,
    Piece,
)

LEAST_NBYTES, MOST_NBYTES = 64 << 10, 4 << 20  # of one request


class Archive:
    has_sizes = has_list = True

    def __init__(self, url: str) -> None:
        import fsspec

        from stoker.storage.origins import open_origin

        first, _, rest = url.partition("::")
        kind, _, folder = first.partition("://")
        where, self._name = _folder_and_name(rest)
        self._outer = open_origin(where)
        self._first, self._rest = f"{kind}://{folder}", self._outer.url_of(self._name)
        self.url = self.url_of("")
        opened = _Opened(self._outer, self._name)
        self._known = opened.known
        self._plain: dict[str, Member] = {}  # not compressed
        with translated():
            buffered = io.BufferedReader(opened, LEAST_NBYTES)
            self._fs = fsspec.filesystem(kind, fo=buffered)
            self._folders = _folders(self._fs, _tag_of(self._known))
            if kind == "zip":
                self._plain = of_zip(self._fs.zip)
            elif kind == "tar" and self._fs.fo is buffered:
                self._plain = of_tar(self._fs.tar)
        # As `tar -C folder .` packs a folder.
        dot = "./" if set(self._folders.get("", ())) == {"."} else ""
        self._folder = f"{dot}{folder}".strip("/")
        self._heads: dict[str, int] = {}  # bytes of headers that were looked at
        self._lock = threading.Lock()  # guards _fs, which reads at one place of one file at a time

    def url_of(self, path: str) -> str:
        first = self._first if self._first.endswith("//") else f"{self._first.rstrip('/')}/"
        return f"{first if path else self._first}{path}::{self._rest}"

    def list(self, folder: str) -> dict[str, Entry]:
        found = self._folders.get(self._at(folder))
        if found is None:
            raise Missing("the archive has no such folder")
        return dict(found)

    def look(self, path: str) -> Entry:
        folder, _, name = self._at(path).rpartition("/")
        found = self._folders.get(folder, {}).get(name)
        if found is None:
            raise Missing("the archive has no such member")
        return found

    def read(
        self, path: str, start: int, end: int, known: Entry, hint: Entry | None = None
    ) -> Piece:
        known, end = self._checked(path, end, known)
        if start >= end:
            return Piece(known, b"")
        at = self._at(path)
        member = self._plain.get(at)
        if member is None:
            with translated(), self._lock:
                body: bytes = self._fs.cat_file(at, start=start, end=end)
            if len(body) != end - start:
                raise Again(f"{len(body)} bytes of {end - start} came")
            return Piece(known, body)
        if (range_ := self._range(at, member, start, end)) is None:
            head = self._outer.read(
                self._name, member.start, member.start + HEAD_NBYTES, self._known
            )
            self._heads[at] = _head_nbytes(head.body)
            range_ = self._range(at, member, start, end)
            assert range_ is not None
        piece = self._outer.read(self._name, *range_, self._known)
        return Piece(known, self._cut(member, start, end, piece.body))

    def get(
        self, path: str, start: int, end: int, known: Entry, hint: Entry | None = None
    ) -> Get | None:
        member = self._plain.get(self._at(path))
        if member is None or known.nbytes == UNKNOWN or start >= end:
            return None
        self._checked(path, end, known)
        range_ = self._range(self._at(path), member, start, end)
        return None if range_ is None else self._outer.get(self._name, *range_, self._known)

    def got(
        self,
        answer: Answer,
        path: str,
        start: int,
        end: int,
        known: Entry,
        hint: Entry | None = None,
    ) -> Piece:
        at = self._at(path)
        member = self._plain[at]
        range_ = self._range(at, member, start, end)
        assert range_ is not None  # as it was when the GET was made
        piece = self._outer.got(answer, self._name, *range_, self._known)
        return Piece(known, self._cut(member, start, end, piece.body))

    def close(self) -> None:
        self._outer.close()

    def _at(self, path: str) -> str:
        return f"{self._folder}/{path}".strip("/")

    def _checked(self, path: str, end: int, known: Entry) -> tuple[Entry, int]:
        """Return what a file is, and where to stop. Raises Changed if it is another one than is known: by
        an earlier run, or another machine."""
        now = self.look(path)
        if known.nbytes == UNKNOWN:
            return now, min(end, now.nbytes)
        if now != known:
            raise Changed(difference(known, now))
        return now, end

    def _range(self, at: str, member: Member, start: int, end: int) -> tuple[int, int] | None:
        """Return the bytes of the archive that hold a piece of a member, of a whole one with its header;
        None if that header has to be looked at before."""
        if (start, end) == (0, member.nbytes):
            return member.start, member.stop
        head = self._heads.get(at) if member.has_head else 0
        return None if head is None else (member.start + head + start, member.start + head + end)

    def _cut(
        self, member: Member, start: int, end: int, body: bytes | bytearray
    ) -> bytes | bytearray:
        """Return a piece of a member. Raises Again where it is damaged: by the way here, it may be."""
        if (start, end) != (0, member.nbytes):
            return body
        if member.has_head:
            head = _head_nbytes(body)
            body = body[head : head + member.nbytes]
        if len(body) != member.nbytes or member.crc not in (None, zlib.crc32(body)):
            raise Again("it is damaged: its checksum is another")
        return body


def _head_nbytes(head: bytes | bytearray) -> int:
    try:
        return head_nbytes(head)
    except ValueError as error:
        raise Denied(str(error)) from error


def _tag_of(archive: Entry) -> str:
    """Return the tag of an archive's members; none if nobody can tell whether it is the same the next time."""
    return archive.tag or (f"{archive.mtime_ns} {archive.nbytes}" if archive.mtime_ns else "")


def _folders(fs: Any, tag: str) -> dict[str, dict[str, Entry]]:
    """Return what is in each folder of an archive. fsspec's own list goes through all members for each."""
    fs._get_dirs()
    found: dict[str, dict[str, Entry]] = {"": {}}
    for raw, told in fs.dir_cache.items():
        path = raw.strip("/")
        folder, _, name = path.rpartition("/")
        entry = entry_of(told)
        if not path:
            continue
        if entry.is_folder:
            found.setdefault(path, {})
        else:
            entry = Entry(False, entry.nbytes, entry.mtime_ns if tag else 0, tag)
        found.setdefault(folder, {})[name] = entry
    return found


def _folder_and_name(url: str) -> tuple[str, str]:
    """Return the URL of the folder that a file lies in, and its name there."""
    first, mark, rest = url.partition("::")
    is_web = first.startswith(("http://", "https://"))
    path, sign, query = first.partition("?") if is_web else (first, "", "")
    folder, _, name = path.rpartition("/")
    return f"{folder}/{sign}{query}{mark}{rest}", unquote(name) if is_web else name


class _Opened(io.RawIOBase):
    """A file of an origin as it was when this was made. Who goes on where the last request has ended gets
    more and more at once; who jumps gets little. Raises OriginError."""

    def __init__(self, origin: Origin, name: str) -> None:
        self.name = name  # fsspec finds out by it how a tar is compressed
        self._origin = origin
        self.known, body = origin.read(name, 0, LEAST_NBYTES, Entry(False, UNKNOWN))
        if self.known.nbytes == UNKNOWN:
            raise Denied("the server does not tell the size of this archive")
        self._at = self._start = 0
        self._here, self._most_nbytes = memoryview(body), LEAST_NBYTES

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._at = offset + (0, self._at, self.known.nbytes)[whence]
        return self._at

    def readinto(self, room: Any) -> int:
        if not self._start <= self._at < self._start + len(self._here):
            self._fetch(len(room))
        begin = self._at - self._start
        piece = self._here[begin : begin + len(room)]
        room[: len(piece)] = piece
        self._at += len(piece)
        return len(piece)

    def _fetch(self, nbytes: int) -> None:
        end = self._start + len(self._here)
        goes_on = end <= self._at <= end + LEAST_NBYTES
        self._most_nbytes = min(4 * self._most_nbytes, MOST_NBYTES) if goes_on else LEAST_NBYTES
        stop = min(self._at + max(nbytes, self._most_nbytes), self.known.nbytes)
        if self._at >= stop:
            return
        piece = self._origin.read(self.name, self._at, stop, self.known)
        self._start, self._here = self._at, memoryview(piece.body)
