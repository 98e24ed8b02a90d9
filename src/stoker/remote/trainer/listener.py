"""Listener: admits hosts that prove the token of this run.

Promise: nothing that a stranger sends is unpickled; a stranger costs at most a thread, a socket and
HANDSHAKE_S, or SHORT_S while MAX_STRANGERS shake hands; what it does ends neither this process nor
another's handshake, and however many strangers there are, a host is admitted.
Owner: the thread that has the receiver's sockets; each handshake has a thread of its own, and
shares nothing but `post`.
"""

import contextlib
import os
import socket
import ssl
import threading
from collections.abc import Callable

from stoker.clock import now_s
from stoker.remote.engines.engine import Settings, Way
from stoker.remote.net.auth import (
    Hello,
    Stranger,
    admit,
    make_token,
    why_unlike,
)
from stoker.remote.net.tls import make_certificate, server_context
from stoker.remote.trainer.files import FileServer
from stoker.remote.trainer.peers import PeerDirectory

HANDSHAKE_S = 5.0
MAX_STRANGERS = 64  # peers that are shaking hands
# Where that many are, the one that came first gives way once it has had so long; a host takes a
# tenth of that. Who comes where none has had it is turned away at once: hosts come again.
SHORT_S = 0.5
FILES, PEERS = "files", "peers"  # what a machine's storage process wants
MAX_TOLD = 16  # reasons for which somebody was turned away


class Listener:
    """Admits hosts. settings: `no_tls`, `allow_mismatch`, and the trainer's `versions`.

    post: has the owner call a function; let_in: is given socket, name and node of a host; tell: is
    given what the user should know. The owner calls both.
    """

    def __init__(
        self,
        settings: Settings,
        post: Callable[[Callable[[], None]], None],
        let_in: Callable[[socket.socket, str, str], None],
        tell: Callable[[str], None],
        files: FileServer | None = None,
    ) -> None:
        self._settings = settings
        self._post = post
        self._let_in = let_in
        self._tell = tell
        self._files, self.peers = files, PeerDirectory()
        self._token = make_token()
        self._context: ssl.SSLContext | None = None
        self._listening: socket.socket | None = None
        self._shaking: dict[socket.socket, float] = {}  # since when; who came first, first
        self._told: set[str] = set()
        self._tells_tls = False  # that batches are encrypted: it was not told yet

    def fileno(self) -> int:
        assert self._listening is not None
        return self._listening.fileno()

    def open(self, bound: str, dialled: str) -> Way:
        """Listen at `bound`; returns what hosts, which dial `dialled`, are told. Raises OSError.

        Uses TLS if anybody else could listen. Called from any thread, once.
        """
        family = socket.AF_INET6 if ":" in bound else socket.AF_INET
        listening = socket.create_server((bound, 0), family=family, backlog=128)
        listening.setblocking(False)
        certificate = ""
        if not bound.startswith("127.") and not self._settings["no_tls"]:
            certificate, key = make_certificate()
            self._context = server_context(certificate, key)
            self._tells_tls = True
        self._listening = listening
        return {
            "address": dialled,
            "port": listening.getsockname()[1],
            "token": self._token.hex(),
            "certificate": certificate,
            "hash_seed": os.environ.get("PYTHONHASHSEED"),  # sets shall have the trainer's order
        }

    def accept(self) -> bool:
        """Accept a connection and begin its handshake; False if no descriptor is left."""
        assert self._listening is not None
        try:
            sock, _ = self._listening.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return True
        except OSError:
            return False
        try:
            if self._context is not None:
                sock = self._context.wrap_socket(
                    sock, server_side=True, do_handshake_on_connect=False
                )
        except (OSError, ValueError):  # it has gone already
            sock.close()
            return True
        if len(self._shaking) >= MAX_STRANGERS and not self._make_room():
            sock.close()
            return True
        self._shaking[sock] = now_s()
        threading.Thread(target=self._shake_hands, args=(sock,), daemon=True).start()
        return True

    def _make_room(self) -> bool:
        """Hang up on the oldest handshake; False if even that may be a host that has just come."""
        first, since_s = next(iter(self._shaking.items()))
        if now_s() - since_s < SHORT_S:
            return False
        del self._shaking[first]
        with contextlib.suppress(OSError):  # it has hung up itself
            socket.socket.shutdown(first, socket.SHUT_RDWR)  # its thread wakes, and closes it
        return True

    def _shake_hands(self, sock: socket.socket) -> None:
        try:
            sock.settimeout(HANDSHAKE_S)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if isinstance(sock, ssl.SSLSocket):
                sock.do_handshake()
            hello = admit(sock, self._token, self._why_refused)
            name, node = str(hello.get("name", "")), str(hello["node"])
            if hello.get("wants") == FILES:
                self._post(lambda: self._serve_files(sock, node))
                return
            if hello.get("wants") == PEERS:
                member = str(hello["member"])
                self._post(lambda: self._serve_peer(sock, member))
                return
            if note := hello.get("note"):
                self._post(lambda: self._tell_once(f"{node}: {note}"))
        except Exception as error:  # whatever a stranger does, its place is free again
            why = str(error) if isinstance(error, Stranger) else ""
            self._post(lambda: self._turned_away(sock, why))
        else:
            self._post(lambda: self._welcome(sock, name, node))

    def _why_refused(self, hello: Hello) -> str:
        if hello.get("cannot"):
            return f"{hello['node']}: {hello['cannot']}"
        if self._settings["allow_mismatch"] or hello.get("wants") in (FILES, PEERS):
            return ""
        return why_unlike(self._settings["versions"], hello)

    def _welcome(self, sock: socket.socket, name: str, node: str) -> None:
        self._shaking.pop(sock, None)
        if self._tells_tls:
            self._tell("batches travel encrypted; --no-tls saves CPU where the network is trusted")
            self._tells_tls = False
        self._let_in(sock, name, node)

    def _serve_files(self, sock: socket.socket, node: str) -> None:
        self._shaking.pop(sock, None)
        if self._files is None:
            sock.close()
            return
        self._tell_once(
            f"{node} lacks {', '.join(self._files.roots)}: files there are sent from here"
        )
        self._files.serve(sock)

    def _serve_peer(self, sock: socket.socket, member: str) -> None:
        self._shaking.pop(sock, None)
        self.peers.serve(sock, member)

    def _tell_once(self, text: str) -> None:
        if text not in self._told and len(self._told) < MAX_TOLD:
            self._told.add(text)
            self._tell(text)

    def _turned_away(self, sock: socket.socket, why: str) -> None:
        """Tell the user why a peer was turned away: each reason once, and at most MAX_TOLD."""
        self._shaking.pop(sock, None)
        sock.close()
        if why and why not in self._told and len(self._told) < MAX_TOLD:
            self._told.add(why)
            self._tell(f"a worker was turned away: {why}")
