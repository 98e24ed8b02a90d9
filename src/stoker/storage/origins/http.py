"""Origin of http:// and https:// URLs: folders as the server's pages list them, files by ranges.

Where a server lists nothing, files are found by their names alone.
"""

import re
from html import unescape
from urllib.parse import quote, unquote, urljoin, urlsplit, urlunsplit

from stoker.storage.origins.origin import (
    UNKNOWN,
    Answer,
    Entry,
    Get,
    Missing,
    Origin,
    Piece,
    identity_of,
    joined,
)
from stoker.storage.origins.web import Web, basic, check, entry_of, get_of, read_range, take_range

_LINK = re.compile(rb"""<a\s[^>]*?href\s*=\s*["']([^"']+)["']""", re.IGNORECASE)


class Http(Origin):
    has_sizes = False

    def __init__(self, url: str) -> None:
        """url: may hold a user and a password, which no message shows."""
        self.identity = identity_of(url)
        url, mark, query = url.partition("?")
        self._query = mark + query
        self.url, self._headers = _without_secret(url)
        self._web = Web()

    def url_of(self, path: str) -> str:
        return joined(self.url, quote(path))

    def _url_of(self, path: str) -> str:
        """With the query, which may hold a signature and is shown nowhere."""
        return f"{self.url_of(path)}{self._query}"

    def list(self, folder: str) -> dict[str, Entry]:
        url = self.url_of(folder).rstrip("/") + "/"
        answer = self._web.ask("GET", url + self._query, self._headers)
        if answer.status == 403:  # as servers answer that are told to list nothing
            raise Missing("HTTP 403: the server shows no list of this folder")
        check(answer)
        if "html" not in answer.header("Content-Type"):
            raise Missing("the server shows no list of this folder")
        return dict(_names(url, bytes(answer.body)))

    def look(self, path: str) -> Entry:
        answer = self._web.ask_once("HEAD", self._url_of(path), self._headers)
        there = urlsplit(answer.header("Location")).path
        if answer.status in (301, 302, 307, 308):
            if there.endswith("/") and not path.endswith("/"):
                return Entry(True)
            answer = self._web.ask("HEAD", self._url_of(path), self._headers)
        check(answer)
        length = answer.header("Content-Length")
        return entry_of(answer, int(length) if length.isdecimal() else UNKNOWN)

    def read(
        self, path: str, start: int, end: int, known: Entry, hint: Entry | None = None
    ) -> Piece:
        return read_range(self._web, self._url_of(path), start, end, known, self._headers, hint)

    def get(
        self, path: str, start: int, end: int, known: Entry, hint: Entry | None = None
    ) -> Get | None:
        if self._web.needs_proxy(self.url):
            return None
        return get_of(self._url_of(path), start, end, known, self._headers, hint)

    def close(self) -> None:
        self._web.close()

    def got(
        self,
        answer: Answer,
        path: str,
        start: int,
        end: int,
        known: Entry,
        hint: Entry | None = None,
    ) -> Piece:
        return take_range(answer, start, end, known, hint)


def _without_secret(url: str) -> tuple[str, dict[str, str]]:
    """Return a URL without user and password, and the header that has them."""
    parts = urlsplit(url)
    user, at, host = parts.netloc.rpartition("@")
    if not at:
        return url, {}
    return urlunsplit(parts._replace(netloc=host)), {"Authorization": basic(user)}


def _names(url: str, page: bytes) -> "list[tuple[str, Entry]]":
    """List what a page links to one level below its own URL, files without their sizes."""
    base = urlsplit(url)
    found = {}
    for link in _LINK.findall(page):
        to = urlsplit(urljoin(url, unescape(link.decode("utf-8", "replace"))))
        if to.netloc != base.netloc or not to.path.startswith(base.path) or to.query:
            continue
        name = unquote(to.path[len(base.path) :])
        is_folder = name.endswith("/")
        name = name.removesuffix("/")
        if name and "/" not in name and name not in (".", ".."):
            found[name] = Entry(is_folder, 0 if is_folder else UNKNOWN)
    return list(found.items())
