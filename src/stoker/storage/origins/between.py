"""How machines of a run ask each other for files: GETs, on connections where both have proved the run's token.

    GET /read HTTP/1.1                  or list, or look
    Asked: {"root": ..., "path": ..., "start": ..., "end": ..., "known": [...]}

    HTTP/1.1 200 OK                     or the status of an error, and what it is in words
    Content-Length: 40960
    Entry: [false, 40960, ...]          where it was not known

As HTTP, so that one thread can send many of them (reading/getter.py), to web servers and machines alike.
Who answers: peers/answering.py.
"""

import http.client
import json
import secrets
import socket
import threading
from collections.abc import Callable
from typing import Any

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

STATUS: dict[type[OriginError], int] = {Missing: 404, Denied: 403, Changed: 412, Again: 503}
Dial = Callable[[], socket.socket]


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
    kinds = {status: kind for kind, status in STATUS.items()}
    raise kinds.get(answer.status, Denied)(bytes(answer.body).decode(errors="replace"))


def entry_of(answer: Answer) -> Entry:
    return Entry(*json.loads(answer.header("Entry")))


def _head(what: str, asked: dict[str, Any]) -> bytes:
    return f"GET /{what} HTTP/1.1\r\nAsked: {json.dumps(asked)}\r\n\r\n".encode()
