"""The storage process's socket: what trainers and commands tell and ask it.

Its name is abstract (unix(7)): nothing of it lies in a folder, and it is gone with the process. Only
processes of the same user are heard.
"""

import contextlib
import json
import os
import secrets
import socket
import struct
import threading
from collections.abc import Callable
from typing import Any

ANSWERS_WITHIN_S = 5.0
_UCRED = struct.Struct("3i")
Message = dict[str, Any]


def new_name() -> str:
    """Return a name for a socket that nobody else has."""
    return f"stoker-storage-{secrets.token_hex(16)}"


class Listener:
    """Hears others, each on a thread of its own. answer: returns what is said back, or None."""

    def __init__(self, name: str, answer: Callable[[Message], Message | None]) -> None:
        self._answer = answer
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.bind(f"\0{name}")
        self._socket.listen(128)
        threading.Thread(target=self._accept, name="storage-listen", daemon=True).start()

    def _accept(self) -> None:
        while True:
            other, _ = self._socket.accept()
            threading.Thread(
                target=self._hear, args=(other,), name="storage-hear", daemon=True
            ).start()

    def _hear(self, other: socket.socket) -> None:
        with other, contextlib.suppress(OSError, ValueError):
            if _user_of(other) not in (os.getuid(), 0):
                return
            with other.makefile("rb") as lines:
                for line in lines:
                    said = None
                    # What one message is, as indices of any kind, must not end the others'.
                    with contextlib.suppress(Exception):
                        said = self._answer(json.loads(line))
                    if said is not None:
                        other.sendall(json.dumps(said).encode() + b"\n")


def _user_of(other: socket.socket) -> int:
    told = other.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
    return int(_UCRED.unpack(told)[1])


def connect(name: str, within_s: float = ANSWERS_WITHIN_S) -> socket.socket:
    """Return a connection. Raises OSError, also if that, or what is done with it, takes longer."""
    own = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    own.settimeout(within_s)
    try:
        own.connect(f"\0{name}")
    except OSError:
        own.close()
        raise
    return own


def ask(name: str, message: Message, within_s: float = ANSWERS_WITHIN_S) -> Message:
    """Return the answer to one message. Raises OSError."""
    with connect(name, within_s) as own:
        own.sendall(json.dumps(message).encode() + b"\n")
        with own.makefile("rb") as lines:
            line = lines.readline()
    if not line:
        raise ConnectionError("the storage process has ended")
    answer: Message = json.loads(line)
    return answer
