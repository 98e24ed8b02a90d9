"""How machines of a run ask each other for files: GETs, on connections where both have proved the run's token.

    GET /read HTTP/1.1                  or list, or look
    Asked: {"root": ..., "path": ..., "start": ..., "end": ..., "known": [...]}

    HTTP/1.1 200 OK                     or the status of an error, and what it is in words
    Content-Length: 40960
    Entry: [false, 40960, ...]          where it was not known

As HTTP, so that one thread can send many of them (reading/getter.py), to web servers and machines alike.
"""

import contextlib
import http.client
import json
import os
import secrets
import socket
import ssl
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

from stoker.storage.origins.origin import (
    SILENT_S,
    Again,
    Answer,
    Changed,
    Denied,
    Entry,
    Get,
    Missing,
    OriginError,
)

_STATUS: dict[type[OriginError], int] = {Missing: 404, Denied: 403, Changed: 412, Again: 503}
_MAX_HEAD_NBYTES = 64 << 10
_PIECE_NBYTES = 256 << 10
Dial = Callable[[], socket.socket]


class Slice(NamedTuple):
    """Bytes of an open file, which is closed once they are sent."""

    fd: int
    start: int
    end: int


class Told(NamedTuple):
    """What is answered."""

    body: bytes | Slice = b""
    entry: Entry | None = None


# -- who asks ------------------------------------------------------------------------------------


class Machine:
    """Another machine of the run. Any thread may call it."""

    def __init__(self, dial: Dial, silent_s: float = SILENT_S) -> None:
        """dial: returns a new connection there, with a timeout; raises OriginError, OSError."""
        self._dial, self._silent_s = dial, silent_s
        self._place = "run", secrets.token_hex(8), 0
        self._own = threading.local()
        self._opened: set[http.client.HTTPConnection] = set()

    def get(self, what: str, most_nbytes: int, asked: dict[str, Any]) -> Get:
        """Return a GET, for who sends many. most_nbytes: that its answer may have."""
        return Get(self._place, _head(what, asked), most_nbytes, self._dial, self._silent_s)

    def ask(self, what: str, asked: dict[str, Any]) -> Answer:
        """Return what it answers if it is no error. Raises OriginError; Again if there is no answer."""
        connection = getattr(self._own, "connection", None) or http.client.HTTPConnection("run")
        self._own.connection = None  # until it has answered
        try:
            if connection.sock is None:
                connection.sock = self._dial()
                self._opened.add(connection)
            connection.putrequest("GET", f"/{what}", skip_host=True, skip_accept_encoding=True)
            connection.putheader("Asked", json.dumps(asked))
            connection.endheaders()
            response = connection.getresponse()
            body = response.read()
        except (OSError, http.client.HTTPException) as error:
            self._opened.discard(connection)
            connection.close()
            raise Again(f"the other machine: {error or type(error).__name__}") from error
        self._own.connection = connection
        headers = {name.lower().encode(): text.encode() for name, text in response.headers.items()}
        return checked(Answer(response.status, headers, body))

    def close(self) -> None:
        """Close all connections, once no thread uses them."""
        for connection in tuple(self._opened):
            connection.close()


def checked(answer: Answer) -> Answer:
    """Return an answer unless it is an error, which is raised."""
    if answer.status == 200:
        return answer
    kinds = {status: kind for kind, status in _STATUS.items()}
    raise kinds.get(answer.status, Denied)(bytes(answer.body).decode(errors="replace"))


def entry_of(answer: Answer) -> Entry:
    return Entry(*json.loads(answer.header("Entry")))


def _head(what: str, asked: dict[str, Any]) -> bytes:
    return f"GET /{what} HTTP/1.1\r\nAsked: {json.dumps(asked)}\r\n\r\n".encode()


# -- who answers ---------------------------------------------------------------------------------


def serve(sock: socket.socket, answer: Callable[[str, dict[str, Any]], Told]) -> None:
    """Answer all that comes on a connection, to its end. answer: is given what is asked; raises
    OriginError. Raises OSError, ValueError if the connection breaks, or something else comes."""
    sock.settimeout(None)
    with contextlib.suppress(OSError):  # no TCP: a machine that vanishes says no goodbye
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 30)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 10)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 60_000)
    received = bytearray()
    while True:
        while (end := received.find(b"\r\n\r\n")) < 0:
            piece = sock.recv(_MAX_HEAD_NBYTES)
            if not piece or len(received) > _MAX_HEAD_NBYTES:
                return
            received += piece
        head = bytes(received[:end])
        del received[: end + 4]
        try:
            told = answer(*_parsed(head))
        except OriginError as error:
            _send(sock, _STATUS.get(type(error), 403), Told(str(error).encode()))
        else:
            _send(sock, 200, told)


def _parsed(head: bytes) -> tuple[str, dict[str, Any]]:
    """Return what is asked. Raises ValueError."""
    line, _, rest = head.partition(b"\r\n")
    method, _, target = line.partition(b" ")
    name, _, told = rest.partition(b": ")
    if method != b"GET" or name.lower() != b"asked":
        raise ValueError("not what a machine of the run asks")
    asked = json.loads(told.partition(b"\r\n")[0])
    if not isinstance(asked, dict):
        raise ValueError("not what a machine of the run asks")
    return target.partition(b" ")[0].decode()[1:], asked


def _send(sock: socket.socket, status: int, told: Told) -> None:
    body = told.body
    nbytes = body.end - body.start if isinstance(body, Slice) else len(body)
    head = f"HTTP/1.1 {status} {'OK' if status == 200 else 'NO'}\r\nContent-Length: {nbytes}\r\n"
    if told.entry is not None:
        head += f"Entry: {json.dumps(told.entry)}\r\n"
    start = f"{head}\r\n".encode()
    if isinstance(body, Slice):
        try:
            _send_slice(sock, start, body)
        finally:
            os.close(body.fd)
    elif nbytes <= _PIECE_NBYTES:
        sock.sendall(start + body)
    else:
        sock.sendall(start)
        sock.sendall(body)


def _send_slice(sock: socket.socket, head: bytes, body: Slice) -> None:
    """Send a file's bytes; small ones with their head. Raises OSError if the file was cut short meanwhile:
    the other side sees no end of it, and asks again."""
    fd, at, end = body
    if isinstance(sock, ssl.SSLSocket) or end - at <= _PIECE_NBYTES:
        while head or at < end:
            piece = os.pread(fd, min(end - at, _PIECE_NBYTES), at)
            if not piece and at < end:
                raise OSError("the file was cut short")
            sock.sendall(head + piece)
            head, at = b"", at + len(piece)
        return
    sock.sendall(head, socket.MSG_MORE)
    while at < end:
        num = os.sendfile(sock.fileno(), fd, at, end - at)
        if not num:
            raise OSError("the file was cut short")
        at += num
