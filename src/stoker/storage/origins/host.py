"""Origin of host:// paths: folders of the trainer's machine, over the run's own authenticated connections.

The other side is remote/trainer/files.py.
"""

import json
import socket
from typing import Any

from stoker.storage.origins.between import Machine, checked, entry_of
from stoker.storage.origins.origin import (
    SILENT_S,
    Again,
    Answer,
    Denied,
    Entry,
    Get,
    Origin,
    Piece,
    joined,
)

SCHEME = "host://"


class Host(Origin):
    has_sizes = True

    def __init__(self, url: str, way: dict[str, Any]) -> None:
        """way: to the trainer, as a host is told it (remote/engines/engine.py, Way)."""
        self.url = self.identity = url
        self._root = url.removeprefix(SCHEME)
        self._way = way
        self._trainer = Machine(self._dial)

    def url_of(self, path: str) -> str:
        return joined(self.url, path)

    def list(self, folder: str) -> dict[str, Entry]:
        answer = self._trainer.ask("list", {"root": self._root, "path": folder})
        return {name: Entry(*entry) for name, entry in json.loads(answer.body).items()}

    def look(self, path: str) -> Entry:
        return entry_of(self._trainer.ask("look", {"root": self._root, "path": path}))

    def read(
        self, path: str, start: int, end: int, known: Entry, hint: Entry | None = None
    ) -> Piece:
        if start >= end:
            return Piece(known, b"")
        answer = self._trainer.ask("read", self._asked(path, start, end, known))
        return self.got(answer, path, start, end, known)

    def get(
        self, path: str, start: int, end: int, known: Entry, hint: Entry | None = None
    ) -> Get | None:
        return self._trainer.get("read", end - start, self._asked(path, start, end, known))

    def got(
        self,
        answer: Answer,
        path: str,
        start: int,
        end: int,
        known: Entry,
        hint: Entry | None = None,
    ) -> Piece:
        body = checked(answer).body
        if len(body) != end - start:
            raise Again(f"{len(body)} bytes of {end - start} came")
        return Piece(known, body)

    def close(self) -> None:
        self._trainer.close()

    def _asked(self, path: str, start: int, end: int, known: Entry) -> dict[str, Any]:
        return {"root": self._root, "path": path, "start": start, "end": end, "known": known}

    def _dial(self) -> socket.socket:
        from stoker.remote.net.auth import Stranger, TurnedAway, dial, pass_of

        try:
            sock = dial(pass_of(self._way), {"wants": "files", "node": self._way["node"]}, SILENT_S)
        except TurnedAway as error:  # many dial just now
            raise Again(str(error)) from error
        except Stranger as error:
            raise Denied(str(error)) from error
        sock.settimeout(SILENT_S)
        return sock
