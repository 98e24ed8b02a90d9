"""Origin of host:// paths: folders of the trainer's machine, over the run's own authenticated connections.

Each thread has a connection. The other side is remote/trainer/files.py:

    asked     length, JSON: what (list, look, read), root, path, start, end, known
    answered  length, JSON: kind (ok or an error), what was asked for, nbytes; then so many bytes
"""

import json
import socket
import struct
import threading
from typing import Any

from stoker.storage.origins.origin import (
    Again,
    Answer,
    Changed,
    Denied,
    Entry,
    Get,
    Missing,
    OriginError,
    Piece,
    joined,
)

SCHEME = "host://"
ANSWERS_WITHIN_S = 20.0
LENGTH = struct.Struct("<I")
ERRORS: dict[str, type[OriginError]] = {
    "missing": Missing, "denied": Denied, "changed": Changed, "again": Again,
}  # fmt: skip


class Host:
    has_sizes = True

    def __init__(self, url: str, way: dict[str, Any]) -> None:
        """way: to the trainer, as a host is told it (remote/engines/engine.py, Way)."""
        self.url = url
        self._root = url.removeprefix(SCHEME)
        self._way = way
        self._own = threading.local()
        self._opened: set[socket.socket] = set()

    def url_of(self, path: str) -> str:
        return joined(self.url, path)

    def list(self, folder: str) -> dict[str, Entry]:
        told, _ = self._ask(what="list", path=folder)
        return {name: Entry(*entry) for name, entry in told["entries"].items()}

    def look(self, path: str) -> Entry:
        told, _ = self._ask(what="look", path=path)
        return Entry(*told["entry"])

    def read(
        self, path: str, start: int, end: int, known: Entry, hint: Entry | None = None
    ) -> Piece:
        if start >= end:
            return Piece(known, b"")
        _, body = self._ask(what="read", path=path, start=start, end=end, known=list(known))
        if len(body) != end - start:
            raise Again(f"{len(body)} bytes of {end - start} came")
        return Piece(known, body)

    def get(self, *_: object) -> Get | None:
        return None

    def got(self, answer: Answer, *_: object) -> Piece:
        raise Denied("this origin is not read by GETs")

    def close(self) -> None:
        for sock in self._opened:
            sock.close()

    def _ask(self, **asked: Any) -> tuple[dict[str, Any], bytearray]:
        sock = getattr(self._own, "sock", None)
        try:
            if sock is None:
                sock = self._own.sock = self._dial()
            said = json.dumps({"root": self._root, **asked}).encode()
            sock.sendall(LENGTH.pack(len(said)) + said)
            (nbytes,) = LENGTH.unpack(_receive(sock, LENGTH.size))
            told = json.loads(_receive(sock, nbytes))
            body = _receive(sock, told["nbytes"])
        except (OSError, ValueError) as error:
            if sock is not None:
                sock.close()
                self._opened.discard(sock)
            self._own.sock = None
            raise Again(f"the trainer's machine: {error or type(error).__name__}") from error
        if told["kind"] != "ok":
            raise ERRORS.get(told["kind"], Denied)(told["why"])
        return told, body

    def _dial(self) -> socket.socket:
        from stoker.remote.net.auth import Pass, Stranger, TurnedAway, dial

        way = self._way
        secret = Pass(way["address"], way["port"], bytes.fromhex(way["token"]), way["certificate"])
        try:
            sock = dial(secret, {"wants": "files", "node": way["node"]}, ANSWERS_WITHIN_S)
        except TurnedAway as error:  # many dial just now
            raise Again(str(error)) from error
        except Stranger as error:
            raise Denied(str(error)) from error
        sock.settimeout(ANSWERS_WITHIN_S)
        self._opened.add(sock)
        return sock


def _receive(sock: socket.socket, nbytes: int) -> bytearray:
    data = bytearray(nbytes)
    rest = memoryview(data)
    while rest:
        num = sock.recv_into(rest)
        if not num:
            raise ConnectionError("it hung up")
        rest = rest[num:]
    return data
