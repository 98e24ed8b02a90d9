"""Joins the machines of a run that serve mounts: tells of this one, hears of the others, and answers them.

The trainer's listener has the list (remote/trainer/peers.py). Promise: who has not proved the run's token
is told nothing; and what fails here costs speed alone: the origin is asked then.
Threads: one hears of the others, one accepts, one a handshake, and those of Answering.
"""

import contextlib
import errno
import json
import select
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from stoker import speak
from stoker.storage.origins import Again, Denied, Entry
from stoker.storage.peers.answering import Answer, Answering
from stoker.storage.peers.homes import SILENT_S, Homes, Member

HANDSHAKE_S = 5.0
MAX_NBYTES = 64 << 20  # asked for at once
AGAIN_S = 5.0  # until it is tried again where that failed
TOLD_EVERY_S = 1.0  # what is read here, to the trainer
_READ_NBYTES = 64 << 10
MAX_STRANGERS = 64  # that shake hands; more are turned away, and ask the origin


class Joining:
    """answer: gives what another machine asks for; stats: what this one has read."""

    def __init__(
        self,
        name: str,
        urls: list[str],
        homes: Homes,
        answer: Answer,
        stats: Callable[[], dict[str, Any]],
    ) -> None:
        self._name, self._urls, self._homes, self._stats = name, urls, homes, stats
        self._answer = answer
        self._answering: Answering | None = None  # once it has joined
        self._is_over = threading.Event()
        self._begin = threading.Lock()  # taken by the first way
        self._strangers = threading.Semaphore(MAX_STRANGERS)
        self._sockets: list[socket.socket] = []

    def join(self, way: Mapping[str, Any]) -> None:
        """Join those of a run, in the background. A second run's way is not taken: one list is enough."""
        if self._begin.acquire(blocking=False):
            self._answering = Answering("storage-peer", self._answer)
            threading.Thread(
                target=self._run, args=(way,), name="storage-peers", daemon=True
            ).start()

    def close(self) -> None:
        self.leave()
        if self._answering is not None:
            self._answering.close()

    def leave(self) -> None:
        """Have the others ask no more."""
        self._is_over.set()
        for sock in self._sockets:
            with contextlib.suppress(OSError):  # wakes who waits there
                socket.socket.shutdown(sock, socket.SHUT_RDWR)

    @speak.guarded
    def _run(self, way: Mapping[str, Any]) -> None:
        from stoker.remote.net.auth import Stranger

        while not self._is_over.is_set():
            with contextlib.suppress(OSError, ValueError, TypeError, Stranger):
                with self._listen(way) as listening:
                    self._sockets.append(listening)
                    try:
                        self._hear_of_others(way, listening)
                    finally:
                        listening.shutdown(socket.SHUT_RDWR)  # wakes who accepts
            self._homes.clear()
            self._is_over.wait(AGAIN_S)

    def _listen(self, way: Mapping[str, Any]) -> socket.socket:
        """Listen where this machine is on the way to the trainer."""
        family = socket.AF_INET6 if ":" in way["address"] else socket.AF_INET
        with socket.socket(family, socket.SOCK_DGRAM) as towards:
            towards.connect((way["address"], way["port"]))  # nothing is sent
            address = towards.getsockname()[0]
        return socket.create_server((address, 0), family=family, backlog=128)

    def _hear_of_others(self, way: Mapping[str, Any], listening: socket.socket) -> None:
        from stoker.remote.net.auth import dial, pass_of
        from stoker.remote.net.tls import make_certificate, server_context

        secret, node = pass_of(way), str(way.get("node", "trainer"))
        certificate, context = "", None
        if secret.certificate:
            certificate, key = make_certificate()
            context = server_context(certificate, key)
        accepting = threading.Thread(
            target=self._accept, args=(listening, secret.token, context), daemon=True
        )
        accepting.start()
        address, port = listening.getsockname()[:2]
        own = Member(self._name, node, address, port, certificate, self._urls)
        hello: dict[str, str | int] = {
            "wants": "peers",
            "node": node,
            "member": json.dumps(own),
        }
        with dial(secret, hello, HANDSHAKE_S) as directory:
            self._sockets.append(directory)
            directory.settimeout(None)
            for line in self._lines(directory):
                self._take(json.loads(line), secret.token, node)

    def _lines(self, directory: socket.socket) -> Iterator[bytes]:
        """Iterate what the directory says; say meanwhile what is read here. TLS wants one thread for both."""
        poller = select.poll()
        poller.register(directory, select.POLLIN)
        received, said = b"", dict[str, Any]()
        while True:
            has_more = isinstance(directory, ssl.SSLSocket) and directory.pending()
            if has_more or poller.poll(TOLD_EVERY_S * 1000):
                data = directory.recv(_READ_NBYTES)
                if not data:
                    return
                received += data
                *lines, rest = received.split(b"\n")
                received = rest
                yield from lines
            elif (told := self._stats()) != said:
                said = told
                directory.sendall(json.dumps(told).encode() + b"\n")

    def _take(self, told: dict[str, Any], token: bytes, node: str) -> None:
        from stoker.remote.net.auth import Pass, dial

        def connect(member: Member) -> socket.socket:
            way = Pass(member.address, member.port, token, member.certificate)
            return dial(way, {"wants": "blocks", "node": node}, SILENT_S)

        for member in told.get("came", ()):
            self._homes.add(Member(*member), connect)
        for name in told.get("gone", ()):
            self._homes.remove(name)

    # -- what others ask for -----------------------------------------------------------------------

    def _accept(
        self, listening: socket.socket, token: bytes, context: ssl.SSLContext | None
    ) -> None:
        while not self._is_over.is_set():
            try:
                sock, _ = listening.accept()
            except OSError as error:
                if error.errno in (errno.EBADF, errno.EINVAL):  # it was closed
                    return
                self._is_over.wait(HANDSHAKE_S)  # too many open files, ...
                continue
            if not self._strangers.acquire(blocking=False):
                sock.close()
                continue
            welcome = threading.Thread(
                target=self._welcome,
                args=(sock, token, context),
                name="storage-welcome",
                daemon=True,
            )
            try:
                welcome.start()
            except RuntimeError:  # too many threads
                sock.close()
                self._strangers.release()

    def _welcome(self, sock: socket.socket, token: bytes, context: ssl.SSLContext | None) -> None:
        from stoker.remote.net.auth import Stranger, admit

        answering = self._answering
        assert answering is not None  # else nobody listens
        with contextlib.suppress(OSError, ValueError, KeyError, Stranger):
            try:
                sock.settimeout(HANDSHAKE_S)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                if context is not None:
                    sock = context.wrap_socket(sock, server_side=True)
                admit(sock, token, lambda hello: "")
            except BaseException:
                sock.close()
                raise
            finally:
                self._strangers.release()
            answering.add(sock)


def asked_of(asked: Mapping[str, Any]) -> tuple[str, str, int, int, Entry]:
    """Return URL, path, start, end and entry of what another machine asks for. Raises OriginError."""
    try:
        url, path = str(asked["url"]), str(asked["path"])
        start, end, known = int(asked["start"]), int(asked["end"]), Entry(*asked["known"])
    except (KeyError, TypeError, ValueError) as error:
        raise Denied(f"not understood: {error}") from None
    if {"", ".", ".."} & set(path.split("/")):
        raise Denied("no such path")
    if not 0 <= start < end <= start + MAX_NBYTES:
        raise Again("no such range")
    return url, path, start, end, known
