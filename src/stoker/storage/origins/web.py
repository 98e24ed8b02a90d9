"""Reads bytes by HTTP: one connection a thread, which is kept, and no more work than a GET needs.

http.client costs 78 us of CPU for a GET of 40 KB, aiohttp 146, urllib3 247: at 1 Gbit/s there are 3,000
such files a second (decision 039).
"""

import contextlib
import http.client
import os
import ssl
import threading
from base64 import b64encode
from calendar import month_abbr, timegm
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from ipaddress import ip_address, ip_network
from urllib.parse import SplitResult, unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

from stoker.storage.origins.origin import (
    UNKNOWN,
    Again,
    Answer,
    Changed,
    Denied,
    Entry,
    Get,
    Missing,
    Piece,
)

ANSWERS_WITHIN_S = 20.0  # of one read from the socket
_MOVED = {301, 302, 303, 307, 308}
_NOT_NOW = {408, 425, 429}
MAX_MOVES = 5
MAX_BODY_NBYTES = 1 << 30  # read at once: of a server that knows no ranges, a whole file


class Web:
    """Connections to servers, of each thread its own."""

    def __init__(self) -> None:
        self._own = threading.local()
        self._opened: set[http.client.HTTPConnection] = set()
        self._tls: ssl.SSLContext | None = None
        self._proxies: dict[tuple[str, str], SplitResult | None] = {}

    def needs_proxy(self, url: str) -> bool:
        """Whether requests go to a proxy, as the environment says."""
        scheme, host, *_ = urlsplit(url)
        return self._proxy_of(scheme, host) is not None

    def _proxy_of(self, scheme: str, host: str) -> SplitResult | None:
        if (scheme, host) not in self._proxies:
            self._proxies[scheme, host] = _proxy_of(scheme, host)
        return self._proxies[scheme, host]

    def ask(self, method: str, url: str, headers: Mapping[str, str]) -> Answer:
        """Return the whole answer, redirects followed. Raises Again if there is none, or half of one."""
        for _ in range(MAX_MOVES):
            answer = self._ask(method, url, headers)
            if answer.status not in _MOVED or not (there := answer.header("Location")):
                return answer
            before, url = urlsplit(url), _moved(url, there)
            if urlsplit(url)[:2] != before[:2]:  # what opens one server is not for another
                headers = {name: value for name, value in headers.items() if name == "Range"}
        raise Again(f"more than {MAX_MOVES} redirects")

    def ask_once(self, method: str, url: str, headers: Mapping[str, str]) -> Answer:
        """Return the answer, a redirect too. Raises Again as `ask`."""
        return self._ask(method, url, headers)

    def _ask(self, method: str, url: str, headers: Mapping[str, str]) -> Answer:
        scheme, host, path, query, _ = urlsplit(url)
        target = f"{path or '/'}?{query}" if query else path or "/"
        if scheme == "http" and (proxy := self._proxy_of(scheme, host)) is not None:
            target, headers = f"http://{host}{target}", {**headers, **_authorization(proxy)}
        kept = self._own.__dict__.setdefault("connections", {})
        connection = kept.pop((scheme, host), None)
        was_kept = connection is not None
        try:
            if connection is None:
                connection = self._connection(scheme, host)
                self._opened.add(connection)
            answer = _exchange(connection, method, target, headers)
        except (OSError, http.client.HTTPException) as error:
            if connection is not None:
                connection.close()
                self._opened.discard(connection)
            if was_kept and isinstance(error, (ConnectionError, http.client.BadStatusLine)):
                # The server has closed what it had kept: as usual as it gets, no failure yet.
                return self._ask(method, url, headers)
            if str(error).startswith("Tunnel connection failed: 4"):
                raise Denied(f"the proxy refuses: {error}") from error
            raise Again(_in_words(error)) from error
        if connection.sock is not None:
            kept[scheme, host] = connection
        else:
            self._opened.discard(connection)
        return answer

    def close(self) -> None:
        """Close all connections, once no thread uses them."""
        for connection in tuple(self._opened):
            connection.close()

    def _connection(self, scheme: str, host: str) -> http.client.HTTPConnection:
        proxy = self._proxy_of(scheme, host)
        at = host if proxy is None else proxy.netloc.rpartition("@")[2]
        if scheme != "https":
            return http.client.HTTPConnection(at, timeout=ANSWERS_WITHIN_S)
        if self._tls is None:
            self._tls = tls_context()
        connection = http.client.HTTPSConnection(at, timeout=ANSWERS_WITHIN_S, context=self._tls)
        if proxy is not None:
            connection.set_tunnel(host, headers=_authorization(proxy))
        return connection


def _proxy_of(scheme: str, host: str) -> SplitResult | None:
    """Return the proxy that http_proxy, https_proxy and no_proxy name for a server. Raises Denied."""
    told = getproxies().get(scheme)
    if not told or proxy_bypass(host) or _is_in_range(host, getproxies().get("no", "")):
        return None
    proxy = urlsplit(told if "://" in told else f"http://{told}")
    if proxy.scheme != "http":
        raise Denied(f"a proxy by {proxy.scheme}:// cannot be used; one by http:// can")
    try:
        return proxy._replace(netloc=proxy.netloc if proxy.port else f"{proxy.netloc}:80")
    except ValueError:  # it may show a password
        raise Denied(f"{scheme}_proxy is no URL; quote what is special in its password") from None


def _is_in_range(host: str, ranges: str) -> bool:
    """Whether a server's address is in one of the ranges of no_proxy, which urllib does not know."""
    with contextlib.suppress(ValueError):
        address = ip_address(urlsplit(f"//{host}").hostname or "")
        for each in ranges.split(","):
            with contextlib.suppress(ValueError):
                if address in ip_network(each.strip(), strict=False):
                    return True
    return False


def _authorization(proxy: SplitResult) -> dict[str, str]:
    user, at, _ = proxy.netloc.rpartition("@")
    return {"Proxy-Authorization": basic(user)} if at else {}


def basic(user: str) -> str:
    """Return what proves user and password of a URL (RFC 7617)."""
    return f"Basic {b64encode(unquote(user).encode()).decode()}"


def tls_context() -> ssl.SSLContext:
    """Return what checks servers' certificates: the system's authorities, or those that AWS's and requests'
    variables name."""
    return ssl.create_default_context(
        cafile=os.environ.get("AWS_CA_BUNDLE") or os.environ.get("REQUESTS_CA_BUNDLE")
    )


def _exchange(
    connection: http.client.HTTPConnection, method: str, target: str, headers: Mapping[str, str]
) -> Answer:
    connection.putrequest(method, target, skip_accept_encoding=True)
    for name, value in headers.items():
        connection.putheader(name, value)
    connection.endheaders()
    response = connection.getresponse()
    if (response.length or 0) > MAX_BODY_NBYTES:
        raise Denied(f"the server sends {response.length:,} bytes at once; does it know no ranges?")
    body = response.read()  # raises IncompleteRead where the body is cut short
    named = ((name.lower().encode(), value.encode()) for name, value in response.headers.items())
    return Answer(response.status, dict(named), body)


def _moved(url: str, there: str) -> str:
    from urllib.parse import urljoin

    return urljoin(url, there)


def _in_words(error: BaseException) -> str:
    if isinstance(error, http.client.IncompleteRead):
        return f"the answer was cut short after {len(error.partial)} bytes"
    if isinstance(error, TimeoutError):
        return f"no answer within {ANSWERS_WITHIN_S:.0f} s"
    return str(error) or type(error).__name__


def check(answer: Answer) -> None:
    """Raise the OriginError that a status means; return if it is a success."""
    status = answer.status
    if 200 <= status < 300:
        return
    if status in (404, 410):
        raise Missing(f"HTTP {status}")
    if status in (401, 403):
        raise Denied(f"HTTP {status}{_reason(answer)}")
    if status == 412:
        raise Changed("its ETag is another")
    if status >= 500 or status in _NOT_NOW:
        raise Again(f"HTTP {status}")
    raise Denied(f"HTTP {status}{_reason(answer)}")


def _reason(answer: Answer) -> str:
    """Return what an object store says in XML, in a word."""
    code = answer.body.partition(b"<Code>")[2].partition(b"</Code>")[0]
    return f" {code.decode(errors='replace')}" if 0 < len(code) < 64 else ""


def entry_of(answer: Answer, nbytes: int) -> Entry:
    """Return what a file's headers tell of it."""
    return Entry(False, nbytes, _time_ns(answer.header("Last-Modified")), answer.header("ETag"))


_MONTHS = {name: at for at, name in enumerate(month_abbr) if name}


def _time_ns(text: str) -> int:
    """Return an HTTP date. The usual form (RFC 9110, 5.6.7) is taken apart here: 60,000 times a minute."""
    with contextlib.suppress(ValueError, KeyError):
        if len(text) == 29 and text.endswith(" GMT"):
            clock = text[17:25].split(":")
            day = int(text[12:16]), _MONTHS[text[8:11]], int(text[5:7])
            return timegm((*day, *map(int, clock))) * 10**9
    try:
        return int(parsedate_to_datetime(text).timestamp()) * 10**9 if text else 0
    except ValueError:
        return 0


def read_range(
    web: Web,
    url: str,
    start: int,
    end: int,
    known: Entry,
    more: Mapping[str, str],
    hint: Entry | None = None,
) -> Piece:
    """Return a piece of a file, as Origin.read does. more: further headers."""
    if start >= end:
        return Piece(known, b"")
    headers = {**more, **_range_headers(start, end, known, hint)}
    return take_range(web.ask("GET", url, headers), start, end, known, hint)


def get_of(
    url: str,
    start: int,
    end: int,
    known: Entry,
    more: Mapping[str, str],
    hint: Entry | None = None,
) -> Get:
    """Return the GET that `read_range` sends."""
    parts = urlsplit(url)
    target = f"{parts.path or '/'}?{parts.query}" if parts.query else parts.path or "/"
    lines = [f"GET {target} HTTP/1.1", f"Host: {parts.netloc.rpartition('@')[2]}"]
    headers = {**more, **_range_headers(start, end, known, hint)}
    lines += [f"{name}: {value}" for name, value in headers.items()]
    place = (
        parts.scheme,
        parts.hostname or "",
        parts.port or (443 if parts.scheme == "https" else 80),
    )
    head = "\r\n".join([*lines, "", ""]).encode("latin-1")
    return Get(place, head, max(end - start, known.nbytes))


def _range_headers(start: int, end: int, known: Entry, hint: Entry | None) -> dict[str, str]:
    headers = {}
    if hint is not None and hint.tag:
        headers["If-None-Match"] = hint.tag
    if start != 0 or end != known.nbytes:
        headers["Range"] = f"bytes={start}-{end - 1}"
    if known.tag and not known.tag.startswith("W/"):  # a weak one never matches (RFC 9110, 13.1.1)
        headers["If-Match"] = known.tag
    return headers


def take_range(
    answer: Answer, start: int, end: int, known: Entry, hint: Entry | None = None
) -> Piece:
    """Return the piece that an answer holds. Raises OriginError unless it is the one that was asked for,
    of the file that is known."""
    if known.nbytes == UNKNOWN:
        if answer.status == 304 and hint is not None:
            return Piece(hint, b"")
        return _take_first(answer, end)
    if answer.status == 416:
        raise Changed("it is shorter than it was")
    check(answer)
    _compare(answer, known)
    body = answer.body
    if answer.status == 206:
        _compare_total(answer, known)
        if len(body) != end - start:
            raise Again(f"{len(body)} bytes of {end - start} came")
    else:
        if len(body) != known.nbytes:
            raise Changed(f"{len(body)} bytes, where there were {known.nbytes}")
        body = body[start:end]  # all of it, unless the server knows no ranges
    return Piece(known, body)


def _take_first(answer: Answer, end: int) -> Piece:
    """Of a file whose size is not known: its first bytes, up to `end`."""
    total = answer.header("Content-Range").rpartition("/")[2]
    if answer.status == 416 and total == "0":
        return Piece(entry_of(answer, 0), b"")
    check(answer)
    if answer.status == 200:  # it is short, or the server knows no ranges
        known = entry_of(answer, len(answer.body))
        return Piece(known, answer.body[:end], is_cut=len(answer.body) > end)
    if not total.isdecimal():
        raise Denied("the server does not tell the size of this file")
    if len(answer.body) != min(end, int(total)):
        raise Again(f"{len(answer.body)} bytes of {min(end, int(total))} came")
    return Piece(entry_of(answer, int(total)), answer.body)


def _compare(answer: Answer, known: Entry) -> None:
    told = answer.header("ETag")
    if known.tag and told and told != known.tag:
        raise Changed("its ETag is another")
    if not (known.tag and told) and known.mtime_ns:
        mtime_ns = _time_ns(answer.header("Last-Modified"))
        if mtime_ns and mtime_ns != known.mtime_ns:
            raise Changed("it was modified meanwhile")


def _compare_total(answer: Answer, known: Entry) -> None:
    total = answer.header("Content-Range").rpartition("/")[2]
    if total.isdecimal() and int(total) != known.nbytes:
        raise Changed(f"{total} bytes, where there were {known.nbytes}")
