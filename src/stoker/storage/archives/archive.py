"""Origin of zip:: and tar:: URLs: members of one file, which lies in another origin.

That file is read as any other is: an archive that is replaced during the run is an error. Members that are
not compressed, and small deflated ones of a zip, are parts of it that are asked for alone, many at once; what
else is compressed is read through a decompressor, by one thread at a time. Members have the archive's tag, so that
they, too, can be kept from run to run and be taken from other machines.
"""

import bz2
import contextlib
import gzip
import io
import lzma
import tarfile
import threading
import zipfile
import zlib
from collections.abc import Callable, Iterator
from typing import IO, cast

from stoker.clock import now_s
from stoker.storage.archives.index import (
    HEAD_NBYTES,
    Index,
    Member,
    head_nbytes,
    index_of_tar,
    index_of_zip,
    normal,
)
from stoker.storage.archives.opened import LEAST_NBYTES, Opened
from stoker.storage.origins import (
    UNKNOWN,
    Again,
    Answer,
    Changed,
    Damaged,
    Entry,
    Get,
    Missing,
    OpenOrigin,
    Origin,
    OriginError,
    Piece,
    difference,
)
from stoker.storage.reading.file import WHOLE_NBYTES

MAX_STREAMS = 8  # decompressors, each where a reader has come to: it does not begin again
_DECOMPRESSORS: dict[bytes, Callable[[IO[bytes]], IO[bytes]]] = {
    b"\x1f\x8b": lambda raw: cast("IO[bytes]", gzip.GzipFile(fileobj=raw)),
    b"BZh": bz2.BZ2File,
    b"\xfd7zXZ\0": lzma.LZMAFile,
}


class Archive(Origin):
    has_sizes = has_list = True

    def __init__(self, url: str, open_outer: OpenOrigin) -> None:
        first, _, rest = url.partition("::")
        kind, _, folder = first.partition("://")
        outer_url, self._name = _folder_and_name(rest)
        self._outer = open_outer(outer_url)
        self._kind, self._folder = kind.lower(), normal(folder) or ""
        self._rest = self._outer.url_of(self._name)
        self.url = self.url_of("")
        self.identity = f"{first}::{self._outer.identity}/{self._name}"
        self._is_closed = threading.Event()
        self._lock = threading.Lock()  # guards _streams, what they read, and what follows
        # By member and where it stands; of a compressed tar all are of one.
        self._streams: dict[tuple[str, int], IO[bytes]] = {}
        # When a reader was last told that no more comes, and why.
        self._gave_up_s, self._why = 0.0, ""
        self._heads: dict[str, int] = {}  # bytes of headers that were looked at
        try:
            with _translated():
                self._index = self._read_index()
        except BaseException:
            self._outer.close()
            raise
        # Neither tag nor time: then nobody can tell whether it is the same the next time.
        known = self._known
        self._tag = known.tag or (f"{known.mtime_ns} {known.nbytes}" if known.mtime_ns else "")

    def _read_index(self) -> Index:
        opened = Opened(self._outer, self._name, None, self._is_closed.wait)
        self._known = opened.known
        raw = io.BufferedReader(opened, LEAST_NBYTES)
        self._decompressor = None
        if self._kind == "zip":
            with zipfile.ZipFile(raw) as packed_zip:
                return index_of_zip(packed_zip)
        begins = raw.read(8)
        raw.seek(0)
        for magic, decompressor in _DECOMPRESSORS.items():
            if begins.startswith(magic):
                self._decompressor = decompressor
        data = raw if self._decompressor is None else self._decompressor(raw)
        with tarfile.open(fileobj=data, mode="r:", tarinfo=_Strict) as packed:
            return index_of_tar(packed)

    def url_of(self, path: str) -> str:
        inside = "/".join(part for part in (self._folder, path) if part)
        return f"{self._kind}://{inside}::{self._rest}"

    def list(self, folder: str) -> dict[str, Entry]:
        real = self._index.real(self._at(folder))
        if real is None or real not in self._index.folders:
            raise Missing("the archive has no such folder")
        found = {}
        for name in self._index.folders[real]:
            entry = self._index.entry(f"{real}/{name}".strip("/"), self._tag)
            if entry is not None:
                found[name] = entry
        return found

    def look(self, path: str) -> Entry:
        found = self._index.entry(self._at(path), self._tag)
        if found is None:
            raise Missing("the archive has no such member")
        return found

    def reads_in_order(self, path: str) -> bool:
        member = self._index.member(self._at(path))
        if member is None:
            return False
        return not self._is_alone(member) or self._outer.reads_in_order(self._name)

    def read(
        self, path: str, start: int, end: int, known: Entry, hint: Entry | None = None
    ) -> Piece:
        known, end = self._checked(path, end, known)
        if start >= end:
            return Piece(known, b"")
        at, member = self._member(path)
        if not self._is_alone(member):
            return Piece(known, self._unpacked(at, member, start, end))
        if self._range(at, member, start, end) is None:
            stop = member.start + HEAD_NBYTES
            head = self._outer.read(self._name, member.start, stop, self._known)
            self._heads[at] = _head_nbytes(head.body)
        range_ = self._range(at, member, start, end)
        assert range_ is not None
        piece = self._outer.read(self._name, *range_, self._known)
        return Piece(known, self._cut(member, start, end, piece.body))

    def get(
        self, path: str, start: int, end: int, known: Entry, hint: Entry | None = None
    ) -> Get | None:
        if known.nbytes == UNKNOWN or start >= end:
            return None
        self._checked(path, end, known)
        at, member = self._member(path)
        range_ = self._range(at, member, start, end) if self._is_alone(member) else None
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
        at, member = self._member(path)
        range_ = self._range(at, member, start, end)
        assert range_ is not None  # as it was when the GET was made
        piece = self._outer.got(answer, self._name, *range_, self._known)
        return Piece(known, self._cut(member, start, end, piece.body))

    def close(self) -> None:
        self._is_closed.set()
        self._outer.close()

    def _at(self, path: str) -> str:
        return f"{self._folder}/{path}".strip("/")

    def _member(self, path: str) -> tuple[str, Member]:
        at = self._at(path)
        member = self._index.member(at)
        if member is None:
            raise Missing("the archive has no such file")
        return at, member

    def _checked(self, path: str, end: int, known: Entry) -> tuple[Entry, int]:
        """Return what a file is, and where to stop. Raises Changed if it is another one than is known: by
        an earlier run, or another machine."""
        now = self.look(path)
        if known.nbytes == UNKNOWN:
            return now, min(end, now.nbytes)
        if now != known:
            raise Changed(difference(known, now))
        return now, end

    # -- members that are parts of the archive ---------------------------------------------------

    def _is_alone(self, member: Member) -> bool:
        """Whether a member can be read without what is around it, and without its own beginning."""
        if self._decompressor is not None or member.pieces:
            return False
        packed = member.packed
        return packed is None or (
            packed.compress_type == zipfile.ZIP_DEFLATED
            and not packed.flag_bits & 1
            and member.nbytes <= WHOLE_NBYTES
        )

    def _range(self, at: str, member: Member, start: int, end: int) -> tuple[int, int] | None:
        """Return the bytes of the archive that hold a piece of a member, of a whole one with its header;
        None if that header has to be looked at before."""
        if (start, end) == (0, member.nbytes) or member.packed is not None:
            return member.start, member.stop
        head = self._heads.get(at) if member.has_head else 0
        return None if head is None else (member.start + head + start, member.start + head + end)

    def _cut(
        self, member: Member, start: int, end: int, body: bytes | bytearray
    ) -> bytes | bytearray:
        """Return a piece of a member. Raises Damaged where a whole one is not what was packed."""
        if (start, end) != (0, member.nbytes) and member.packed is None:
            return body
        if member.has_head:
            head = _head_nbytes(body)
            body = body[head:]
            if member.packed is None:
                body = body[: member.nbytes]
            else:
                with _translated():
                    body = zlib.decompressobj(-zlib.MAX_WBITS).decompress(body, member.nbytes + 1)
        is_right = member.crc is None or member.crc == zlib.crc32(body)
        if len(body) != member.nbytes or not is_right:
            raise Damaged("its checksum in the archive is another")
        return body[start:end]

    # -- members that have to be read from their beginning ---------------------------------------

    def _unpacked(self, at: str, member: Member, start: int, end: int) -> bytes | bytearray:
        if member.pieces and self._decompressor is None:
            return self._filled(member, start, end)
        key, begin = (at, 0) if self._decompressor is None else ("", member.start)
        asked_s = now_s()
        with self._lock, _translated():
            if asked_s < self._gave_up_s:  # else each would wait as long as the one before
                raise Again(self._why)
            try:
                if member.pieces:
                    return self._filled(member, start, end)
                return self._from_stream(key, member, begin + start, end - start)
            except Again as error:
                self._gave_up_s, self._why = now_s(), str(error)
                raise

    def _from_stream(self, key: str, member: Member, start: int, nbytes: int) -> bytes:
        """Read from the decompressor that has the shortest way to go on. Under the lock."""
        before = [at for at in self._streams if at[0] == key and at[1] <= start]
        # After an error it is not used again.
        stream = self._streams.pop(max(before)) if before else self._stream(member)
        stream.seek(start)
        body = stream.read(nbytes)
        self._streams[key, start + len(body)] = stream
        if len(self._streams) > MAX_STREAMS:
            del self._streams[next(iter(self._streams))]
        if len(body) != nbytes:
            raise Damaged(f"{len(body)} bytes of {nbytes} were packed")
        return body

    def _filled(self, member: Member, start: int, end: int) -> bytearray:
        """Return a piece of a file with holes."""
        body = bytearray(end - start)
        at = member.start
        for offset, nbytes in member.pieces:
            first, last = max(offset, start), min(offset + nbytes, end)
            if first < last:
                begin, stop = at + first - offset, at + last - offset
                if self._decompressor is None:
                    piece = self._outer.read(self._name, begin, stop, self._known).body
                else:
                    piece = self._from_stream("", member, begin, stop - begin)
                body[first - start : last - start] = piece
            at += nbytes
        return body

    def _stream(self, member: Member) -> IO[bytes]:
        raw = io.BufferedReader(
            Opened(self._outer, self._name, self._known, self._is_closed.wait), LEAST_NBYTES
        )
        if self._decompressor is not None:
            return self._decompressor(raw)
        assert member.packed is not None
        if member.packed.flag_bits & 1:
            raise Damaged("it is encrypted")
        raw.seek(member.start)
        raw.seek(member.start + _head_nbytes(raw.read(HEAD_NBYTES)))
        return cast("IO[bytes]", zipfile.ZipExtFile(raw, "r", member.packed))


class _Strict(tarfile.TarInfo):
    """Raises Damaged for a header that is none: tarfile would end there, as if there were no more."""

    @classmethod
    def fromtarfile(cls, archive: tarfile.TarFile) -> "_Strict":
        try:
            return super().fromtarfile(archive)
        except tarfile.HeaderError as error:
            if type(error).__name__ not in ("InvalidHeaderError", "TruncatedHeaderError"):
                raise  # its end
            raise Damaged(f"the archive is damaged at byte {archive.offset:,}: {error}") from error


def _head_nbytes(head: bytes | bytearray) -> int:
    try:
        return head_nbytes(head)
    except ValueError as error:
        raise Damaged(str(error)) from error


def _folder_and_name(url: str) -> tuple[str, str]:
    """Return the URL of the folder that an archive lies in, and its name there. What is on the web is opened
    as it is written: its name may be no path."""
    if url.startswith(("http://", "https://")):
        return url, ""
    first, mark, rest = url.partition("::")
    if mark and "://" not in first:  # a cache of fsspec's, for example
        folder, name = _folder_and_name(rest)
        return f"{first}::{folder}", name
    folder, _, name = first.rpartition("/")
    return f"{folder}/{mark}{rest}", name


@contextlib.contextmanager
def _translated() -> Iterator[None]:
    """Turn what Python's libraries raise into OriginErrors; transient ones are none of theirs."""
    try:
        yield
    except OriginError:
        raise
    except Exception as error:
        raise Damaged(f"it cannot be unpacked: {str(error) or type(error).__name__}") from error
