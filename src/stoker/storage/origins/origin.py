"""Defines what an origin is: where files lie that a mount shows, and how it can fail.

Pure.
"""

import socket
from collections.abc import Callable
from hashlib import blake2b
from typing import NamedTuple, Protocol

UNKNOWN = -1  # bytes of a file, where a listing does not tell


class Entry(NamedTuple):
    """One name in a folder. nbytes: UNKNOWN where the listing has none; mtime_ns: 0 if there is none;
    tag: what changes with the bytes, as an ETag; empty if the origin has no such thing."""

    is_folder: bool
    nbytes: int = 0
    mtime_ns: int = 0
    tag: str = ""


SILENT_S = 20.0  # then a connection is taken for dead


class Get(NamedTuple):
    """A GET as it is sent. place: scheme, host and port; head: request line and headers; most_nbytes: that
    its body may have; dial: connects to that place, where only its owner can; may wait, and raise."""

    place: tuple[str, str, int]
    head: bytes
    most_nbytes: int
    dial: Callable[[], socket.socket] | None = None
    silent_s: float = SILENT_S


class Answer(NamedTuple):
    """What a server answered. headers: by lower-case name."""

    status: int
    headers: dict[bytes, bytes]
    body: bytes | bytearray

    def header(self, name: str) -> str:
        return self.headers.get(name.lower().encode(), b"").decode("latin-1")


class OriginError(Exception):
    """What an origin answered that is no file's bytes. The text names no URL: the caller knows it."""


class Missing(OriginError):
    """There is no such file."""


class Denied(OriginError):
    """The origin knows us and says no, or does not know us."""


class Changed(OriginError):
    """The file is not the one that was listed."""


class Again(OriginError):
    """It failed now, and may not fail the next time: 5xx, too slow, cut short, unreachable."""


class Damaged(OriginError):
    """What lies there is not what it should be, and no other try helps."""


class Piece(NamedTuple):
    """Bytes of a file, and its entry, with its size. is_cut: the server has sent all of it, though less was
    asked for."""

    known: Entry
    body: bytes | bytearray
    is_cut: bool = False


class Source(Protocol):
    """What can be asked for bytes of files by a GET: an origin, or another machine that reads it."""

    def get(
        self, path: str, start: int, end: int, known: Entry, hint: Entry | None = None
    ) -> Get | None:
        """Return the GET that `Origin.read` would send, for who sends many; None if it does something else."""

    def got(
        self,
        answer: Answer,
        path: str,
        start: int,
        end: int,
        known: Entry,
        hint: Entry | None = None,
    ) -> Piece:
        """Return what `Origin.read` makes of that GET's answer. Raises OriginError."""


class Origin(Source, Protocol):
    """Read-only files below one URL. Called by many threads at once.

    Each method raises an OriginError; `Again` where another try may help. Paths are relative, with
    slashes, and "" is the URL itself.
    """

    url: str
    """For messages: with no password, and nothing that opens it."""
    identity: str
    """Tells apart origins with the same `url`, on all machines."""
    has_sizes: bool
    """Whether listings tell sizes. If not, `look` is asked of each file that is opened."""
    has_list: bool = False
    """Whether all names are known once it is opened: they are not kept for the next run."""

    def reads_in_order(self, path: str) -> bool:
        """Whether a file is read well from its beginning only: then nothing of it is fetched ahead."""
        return False

    def list(self, folder: str) -> dict[str, Entry]:
        """Return all names in a folder."""

    def look(self, path: str) -> Entry:
        """Return one file's entry, its size included."""

    def read(
        self, path: str, start: int, end: int, known: Entry, hint: Entry | None = None
    ) -> Piece:
        """Return the bytes [start, end) of a file, all of them. Raises Changed unless the file is
        the one of `known`; of one whose size is UNKNOWN there may be fewer, and none if it is still
        the one of `hint`."""

    def url_of(self, path: str) -> str:
        """Return a file's URL, for messages."""

    def close(self) -> None:
        """Close what is open, once no thread asks for anything."""


def shown(url: str) -> str:
    """Return a URL without user, password and query, for messages."""
    parts = []
    for part in url.split("::"):
        scheme, mark, rest = part.partition("://")
        host, slash, path = rest.partition("/")
        if scheme.lower() in ("http", "https"):
            path = path.partition("?")[0]
        parts.append(f"{scheme}{mark}{host.rpartition('@')[2]}{slash}{path}" if mark else part)
    return "::".join(parts)


def identity_of(url: str) -> str:
    """Return what tells apart two URLs that are shown as one."""
    text = shown(url)
    digest = blake2b(url.encode(errors="surrogateescape"), digest_size=8).hexdigest()
    return text if text == url else f"{text}#{digest}"


def difference(known: Entry, now: Entry) -> str:
    """Return in words what has changed."""
    if known.nbytes != now.nbytes:
        return f"{now.nbytes} bytes, where there were {known.nbytes}"
    return "its tag is another" if known.tag != now.tag else "it was modified meanwhile"


def joined(url: str, path: str) -> str:
    return f"{url.rstrip('/')}/{path}" if path else url


OpenOrigin = Callable[[str], Origin]
