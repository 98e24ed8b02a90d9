"""A web server of folders that counts what it is asked, and fails as it is told: an origin for tests."""

import contextlib
import hashlib
import mmap
import socket
import ssl
import threading
import time
from collections import Counter
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import quote, unquote


class OriginServer:
    """Serves a folder. fault: called with method, path and how often this path was asked for; returns
    None, a status to answer with, `cut` for half a body, or `drop` for no answer at all."""

    def __init__(
        self,
        folder: Path,
        *,
        lists: bool = True,
        ranges: bool = True,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.folder, self.lists, self.ranges, self.tls = folder, lists, ranges, tls
        self.asked: Counter[tuple[str, str]] = Counter()  # by method and path
        self.num_nbytes = 0  # of bodies
        self.fault = lambda method, path, number: None
        self.hear = lambda headers: None
        self.moved = ""  # where all has moved to
        self._lock = threading.Lock()
        self.port = 0
        self.start()

    def start(self) -> None:
        owner = self

        class Handler(_Handler):
            server_of = owner

        self._server = _Server(("127.0.0.1", self.port), Handler)
        if self.tls is not None:
            self._server.socket = self.tls.wrap_socket(self._server.socket, server_side=True)
        self.port = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()

    def stop(self) -> None:
        """Hang up on everybody, and answer nobody."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
        for connection in tuple(_open):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    @property
    def url(self) -> str:
        return f"http{'s' * (self.tls is not None)}://127.0.0.1:{self.port}"

    def count(self, method: str, path: str) -> int:
        with self._lock:
            self.asked[method, path] += 1
            return self.asked[method, path]

    def num(self, method: str, suffix: str = "") -> int:
        with self._lock:
            return sum(
                n
                for (how, path), n in self.asked.items()
                if how == method and path.endswith(suffix)
            )


_open: set = set()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256


class _Handler(BaseHTTPRequestHandler):
    server_of: OriginServer
    protocol_version = "HTTP/1.1"

    def setup(self) -> None:
        super().setup()
        self.connection.settimeout(30)
        _open.add(self.connection)

    def finish(self) -> None:
        _open.discard(self.connection)
        super().finish()

    def handle(self) -> None:
        try:
            super().handle()
        except (OSError, ValueError):
            self.close_connection = True

    def log_message(self, *_: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self._answer("HEAD")

    def do_GET(self) -> None:
        self._answer("GET")

    def _answer(self, method: str) -> None:
        origin = self.server_of
        origin.hear(self.headers)
        if origin.moved:
            self._send(302, b"", {"Location": origin.moved + self.path})
            return
        path = unquote(self.path.partition("?")[0])
        fault = origin.fault(method, path, origin.count(method, path))
        if fault == "drop":
            self.close_connection = True
            return
        if isinstance(fault, float):
            time.sleep(fault)
        if isinstance(fault, int):
            self._send(fault, b"", {})
            return
        at = origin.folder / path.lstrip("/")
        if at.is_dir():
            self._index(at, path)
        elif at.is_file():
            self._file(at, method, fault == "cut")
        else:
            self._send(404, b"", {})

    def _index(self, at: Path, path: str) -> None:
        if not path.endswith("/"):
            self._send(301, b"", {"Location": quote(path) + "/"})
        elif not self.server_of.lists:
            self._send(403, b"", {})
        else:
            names = [quote(each.name) + "/" * each.is_dir() for each in at.iterdir()]
            page = "".join(f'<a href="{name}">{name}</a>\n' for name in ["../", *names]).encode()
            self._send(200, page, {"Content-Type": "text/html"})

    def _file(self, at: Path, method: str, is_cut: bool) -> None:
        data, mtime = _bytes_of(at), at.stat().st_mtime
        tag = f'"{_digest(at, data)}"'
        headers = {"ETag": tag, "Last-Modified": formatdate(mtime, usegmt=True)}
        if self.headers.get("If-Match", tag) != tag:
            self._send(412, b"", headers)
            return
        if self.headers.get("If-None-Match") == tag:
            self._send(304, b"", headers)
            return
        status, total = 200, len(data)
        asked = self.headers.get("Range", "")
        if asked.startswith("bytes=") and self.server_of.ranges:
            first, _, last = asked.removeprefix("bytes=").partition("-")
            if int(first) >= total:
                self._send(416, b"", {**headers, "Content-Range": f"bytes */{total}"})
                return
            end = min(int(last), total - 1)
            status, data = 206, data[int(first) : end + 1]
            headers["Content-Range"] = f"bytes {first}-{end}/{total}"
        if method == "HEAD":
            headers["Content-Length"] = str(len(data))
            self._send(status, b"", headers)
            return
        self._send(status, data[:], headers, is_cut)

    def _send(
        self, status: int, body: bytes, headers: dict[str, str], is_cut: bool = False
    ) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        sent = body[: len(body) // 2] if is_cut else body
        self.server_of.num_nbytes += len(sent)  # before whoever asked has it
        self.wfile.write(sent)
        self.close_connection |= is_cut


LARGE_NBYTES = 32 << 20  # such a file is read by the pages that are sent
_digests: dict[tuple[Path, int], str] = {}  # of large files, by path and time of change


def _bytes_of(at: Path) -> "bytes | mmap.mmap":
    if at.stat().st_size < LARGE_NBYTES:
        return at.read_bytes()
    with at.open("rb") as opened:
        return mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ)


def _digest(at: Path, data: "bytes | mmap.mmap") -> str:
    if isinstance(data, bytes):
        return hashlib.md5(data).hexdigest()
    key = at, at.stat().st_mtime_ns
    if key not in _digests:
        _digests[key] = hashlib.md5(data).hexdigest()
    return _digests[key]
