"""Tells the machines that serve mounts of each other: storage processes, which ask each other for blocks.

    to each      {"came": [member, ...]} or {"gone": [name, ...]}, a line
    from each    what it has read so far (storage/reading/stats.py), a line

A member is told as storage/peers/homes.py has it. Who asks has proved the run's token.
Threads: one a connection.
"""

import contextlib
import json
import select
import socket
import threading
from typing import Any

from stoker.storage.peers.answering import notice_end

SENT_WITHIN_S = 5.0  # or a machine is taken for gone
_MAX_LINE_NBYTES = 16 << 10
TRAINER = "trainer"  # the node of the storage process beside the trainer


class PeerDirectory:
    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards all below, and what is done with the sockets
        self._members: dict[socket.socket, list[Any]] = {}
        self._reading = threading.Lock()  # guards _read; never held while something is sent
        self._read: dict[str, dict[str, float]] = {}  # by name: what a machine has read

    def totals(self) -> dict[str, float]:
        """Return what other machines have read, those that are gone too, added up; the trainer's own
        storage process is asked by others."""
        found: dict[str, float] = {}
        with self._reading:
            for told in self._read.values():
                for name, number in told.items():
                    found[name] = found.get(name, 0) + number
        return found

    def serve(self, sock: socket.socket, member: str) -> None:
        """Serve a machine until its connection ends, on a thread. member: as it tells of itself, JSON."""
        threading.Thread(target=self._serve, args=(sock, member), name="peers", daemon=True).start()

    def _serve(self, sock: socket.socket, told: str) -> None:
        with sock, contextlib.suppress(OSError, ValueError, TypeError, AttributeError):
            name, node, address, port, certificate, urls = json.loads(told)
            member = [str(name), str(node), str(address), int(port), str(certificate), list(urls)]
            sock.settimeout(SENT_WITHIN_S)
            notice_end(sock)
            try:
                with self._lock:
                    _say(sock, came=[*self._members.values()])
                    self._tell(came=[member])
                    self._members[sock] = member
                self._hear(sock, member)
            finally:
                self._remove(sock)

    def _hear(self, sock: socket.socket, member: list[Any]) -> None:
        """Take what a machine says, until it has gone. Raises OSError, ValueError."""
        name, node = str(member[0]), str(member[1])
        poller = select.poll()
        poller.register(sock, select.POLLIN | select.POLLRDHUP)
        received = bytearray()
        while poller.poll():
            with self._lock:  # TLS: one thread at a time
                data = sock.recv(_MAX_LINE_NBYTES)
            received += data
            *lines, rest = received.split(b"\n")
            received = rest
            if not data or len(received) > _MAX_LINE_NBYTES:
                return
            if lines and node != TRAINER:
                told = {str(key): float(number) for key, number in json.loads(lines[-1]).items()}
                with self._reading:
                    self._read[name] = told

    def _remove(self, sock: socket.socket) -> None:
        with self._lock:
            member = self._members.pop(sock, None)
            if member is not None:
                self._tell(gone=[member[0]])

    def _tell(self, **told: Any) -> None:
        """Tell all; who does not listen is hung up on, and its thread removes it."""
        for sock in self._members:
            try:
                _say(sock, **told)
            except OSError:
                with contextlib.suppress(OSError):
                    socket.socket.shutdown(sock, socket.SHUT_RDWR)


def _say(sock: socket.socket, **told: Any) -> None:
    sock.sendall(json.dumps(told).encode() + b"\n")
