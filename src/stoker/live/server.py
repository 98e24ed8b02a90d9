"""Serves a run's page over HTTP: the page itself, what is new, and metrics. It answers GET alone, and changes nothing.

Promise: who does not know the token gets nothing, nor does a page of another site; nothing that the page needs is
elsewhere.
Owner: each request has a thread of its own, which reads the feed's frozen bytes.
"""

import base64
import gzip
import hashlib
import hmac
import socket
from collections.abc import Callable, Mapping
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socketserver import TCPServer
from threading import Semaphore, Thread
from typing import Any
from urllib.parse import parse_qs, urlsplit

from stoker.clock import now_s
from stoker.live.address import family_of, host_and_port, is_loopback, url_of
from stoker.live.feed import Feed

STATIC = Path(__file__).with_name("static")
REQUEST_S = 10.0  # until a client has said what it wants
MAX_CLIENTS = 32  # at once: each has a thread
ANSWER_S = 120.0  # until a client has taken an answer
LEFT_OPEN_S = 120.0  # since its last request a page is taken for open; hidden ones ask each minute
STAY_OPEN_S = 10.0  # since it has heard of the end
LEAST_ZIPPED_NBYTES = 64 * 1024
_SAFE = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class PageServer(ThreadingHTTPServer):
    """Serves one feed. metrics: returns what /metrics answers, and its type; None where its library is missing."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(
        self, address: str, token: str, feed: Feed, metrics: Callable[[], tuple[bytes, str] | None]
    ) -> None:
        """address: HOST:PORT; port 0: any. Raises OSError where that cannot be had."""
        self._host, port = host_and_port(address)
        self.address_family = family_of(self._host)
        super().__init__((self._host, port), _Handler)
        self.token, self.feed, self.metrics = token, feed, metrics
        self.page, self.policy = page_of(STATIC)
        self.has_ended = False  # the run
        self.asked_s: float | None = None  # when a page last asked for what is new
        self.heard_s: float | None = None  # when one was first told of the end
        self.scraped_s: float | None = None  # when metrics were last asked for, before the end
        # Clients that have not said what they want, and since when.
        self._silent: dict[socket.socket, float] = {}
        self._has_room = Semaphore(MAX_CLIENTS)

    @property
    def url(self) -> str:
        return url_of(self._host, self.server_address[1], self.token)

    @property
    def is_loopback(self) -> bool:
        return is_loopback(self._host)

    @property
    def is_looked_at(self) -> bool:
        """Whether somebody has the page open, or asks for metrics, and was not told of the end."""
        now = now_s()
        if self.heard_s is not None:  # what it shows it keeps; another run may want the port
            return now - self.heard_s < STAY_OPEN_S
        last_s = max(self.asked_s or 0.0, self.scraped_s or 0.0)
        return bool(last_s) and now - last_s < LEFT_OPEN_S

    def server_bind(self) -> None:
        """Bind; without asking for the machine's full name, as HTTPServer does, of which a resolver may know nothing."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = self._host, self.server_address[1]

    def end_stale(self) -> None:
        """Hang up on clients that take too long to say what they want. Called once a second."""
        for sock, since_s in tuple(self._silent.items()):
            if now_s() - since_s > REQUEST_S:
                with suppress(OSError):  # it is closed
                    sock.shutdown(socket.SHUT_RDWR)

    def begin(self) -> None:
        Thread(target=self.serve_forever, name="page", daemon=True).start()

    def verify_request(self, request: object, client_address: object) -> bool:
        return self._has_room.acquire(blocking=False)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        self._silent[request] = now_s()
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._silent.pop(request, None)
            self._has_room.release()

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing: a client that goes away is none of the user's business."""


class _Handler(BaseHTTPRequestHandler):
    server: PageServer
    timeout = REQUEST_S
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "stoker", ""

    def do_GET(self) -> None:
        self.server._silent.pop(self.connection, None)
        self.connection.settimeout(ANSWER_S)
        try:
            self._get()
        finally:
            self.connection.settimeout(REQUEST_S)
            self.server._silent[self.connection] = now_s()  # what else it may want

    def _get(self) -> None:
        url = urlsplit(self.path)
        asked = {name: values[-1] for name, values in parse_qs(url.query).items()}
        server, has_ended = self.server, self.server.has_ended
        if why := self._why_refused(asked.get("token", ""), url.path):
            self._answer(HTTPStatus.FORBIDDEN, why.encode())
        elif url.path == "/":
            self._answer(HTTPStatus.OK, server.page, "text/html; charset=utf-8")
        elif url.path == "/data":
            server.asked_s = now_s()
            if has_ended and server.heard_s is None:
                # before the answer goes: who has it may look at once
                server.heard_s = server.asked_s
            data = data_since(server.feed, asked.get("since", ""))
            self._answer(HTTPStatus.OK, data, "application/json")
        elif url.path == "/metrics":
            server.scraped_s = None if has_ended else now_s()
            found = server.metrics()
            if found is None:
                why = "prometheus-client is not installed where the run's Python finds it: pip install prometheus-client\n"
                self._answer(HTTPStatus.NOT_IMPLEMENTED, why.encode())
            else:
                self._answer(HTTPStatus.OK, *found)
        else:
            self._answer(HTTPStatus.NOT_FOUND, b"no such page\n")

    def _why_refused(self, token: str, path: str) -> str:
        """Return why a request is refused; empty if it is not."""
        given = token or self.headers.get("Authorization", "").removeprefix("Bearer ")
        if not hmac.compare_digest(given.encode(), self.server.token.encode()):
            return "wrong token: open the address that the run has printed\n"
        # A click on the printed address in another page (a terminal in a browser) opens the page, and no other page reads it.
        opens = path == "/" and self.headers.get("Sec-Fetch-Dest") == "document"
        if not opens and self.headers.get("Sec-Fetch-Site", "none") not in ("none", "same-origin"):
            return "asked for by another site\n"
        origin, host = self.headers.get("Origin"), self.headers.get("Host", "")
        if origin is not None and origin != f"http://{host}":
            return "asked for by another site\n"
        if self.server.is_loopback and not _is_of_loopback(host):
            return f"asked for as {host!r}, which is no name of this machine's loopback\n"
        return ""

    def _answer(
        self, status: HTTPStatus, body: bytes, kind: str = "text/plain; charset=utf-8"
    ) -> None:
        zips = (
            "gzip" in self.headers.get("Accept-Encoding", "") and len(body) >= LEAST_ZIPPED_NBYTES
        )
        body = gzip.compress(body, 1) if zips else body
        headers = {"Content-Type": kind, "Content-Length": str(len(body)), **_SAFE}
        headers |= {"Content-Encoding": "gzip"} if zips else {}
        headers["Content-Security-Policy"] = self.server.policy
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: stderr is the script's."""


def page_of(static: Path) -> tuple[bytes, str]:
    """Return the page with all that it needs, and the policy that allows it nothing else.

    Source of the policy: W3C, Content Security Policy Level 3, sections 6.1 and 6.6.
    """
    text = (static / "page.html").read_text()
    sources: Mapping[str, list[str]] = {"script": [], "style": []}
    for name in ("uPlot.min.css", "page.css", "uPlot.iife.min.js", "page.js"):
        tag = "style" if name.endswith(".css") else "script"
        held = (static / name).read_text()
        sources[tag].append(_hash_of(held))
        text = text.replace(f"<!-- {name} -->", f"<{tag}>{held}</{tag}>")
    policy = (
        f"default-src 'none'; script-src {' '.join(sources['script'])}; "
        f"style-src {' '.join(sources['style'])}; connect-src 'self'; img-src data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    return text.encode(), policy


def _hash_of(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def data_since(feed: Feed, since: str) -> bytes:
    """Return the spans from the one with this number on, and how the run stands now. since: as it was asked."""
    spans = feed.spans
    first = min(int(since), len(spans)) if since.isdecimal() else 0
    new = b",".join(spans[first:])
    return b'{"first":%d,"spans":[%s],"now":%s}' % (first, new, feed.now)


def _is_of_loopback(host: str) -> bool:
    """Whether a request's Host names loopback: a name that an attacker's DNS leads here does not."""
    name = host.rpartition(":")[0] if host.rpartition(":")[2].isdecimal() else host
    return is_loopback(name.strip("[]"))
