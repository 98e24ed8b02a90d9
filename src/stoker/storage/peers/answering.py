"""Answers what machines of a run ask for (between.py): on one thread, from what is at hand.

What would wait, for a disk or another machine, is answered by threads meanwhile; who has asked is told
that it is being done, again and again, so as not to take this machine for dead. With a thread for each
connection a file of 40 KB cost 210 us, most of it to hand the interpreter's lock from thread to thread
(decision 039).
Owner: its thread owns all but `add`.
"""

import contextlib
import json
import os
import selectors
import socket
import ssl
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

from stoker.clock import now_s
from stoker.storage.origins.between import STATUS
from stoker.storage.origins.origin import SILENT_S, Again, Entry, OriginError

_MAX_HEAD_NBYTES = 64 << 10
_PIECE_NBYTES = 256 << 10
NUM_THREADS = 32
# That an answer will come; homes.py takes who says nothing for 2 s for dead, and getter.py looks each second.
SAYS_EACH_S = 0.5
SAYS_FOR_S = SILENT_S  # of an origin; who has asked then asks elsewhere, and leaves this machine out for a while
_WILL_COME = b"HTTP/1.1 100 Continue\r\n\r\n"  # RFC 9110, 15.2


class Slice(NamedTuple):
    """Bytes of an open file, which is closed once they are sent."""

    fd: int
    start: int
    end: int


class Told(NamedTuple):
    """What is answered."""

    body: bytes | Slice = b""
    entry: Entry | None = None


class Later(NamedTuple):
    """What is on its way here. subscribe: has a function called when it may be asked for again."""

    subscribe: Callable[[Callable[[], None]], None]


Answer = Callable[[str, dict[str, Any], bool], "Told | Later | None"]
"""Is given what is asked, and whether it may wait; returns None if it has to, and may not. Raises
OriginError."""


class _Connection:
    """A connection. Half of a question, or what is left of an answer: a connection has no two."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.received = bytearray()
        self.unsent: memoryview | None = None
        self.fd, self.at, self.end = -1, 0, 0  # of a slice, what is not read yet
        self.waits = False  # a thread is at it
        self.events = 0  # that the selector looks for

    def let_go(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


def notice_end(sock: socket.socket) -> None:
    """Have a connection end within a minute of its other machine's: one that vanishes says no goodbye."""
    with contextlib.suppress(OSError):  # it is no TCP
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 30)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 10)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 60_000)


class Answering:
    def __init__(self, name: str, answer: Answer) -> None:
        """name: of the threads."""
        self._answer = answer
        self._selector = selectors.EpollSelector()
        self._wake_fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._selector.register(self._wake_fd, selectors.EVENT_READ, None)
        self._posted: deque[Callable[[], None]] = deque()
        self._sleeps = False
        self._connections: set[_Connection] = set()
        self._pool = ThreadPoolExecutor(NUM_THREADS, f"{name}-wait")
        self._is_closed = False
        self._asked_s: dict[_Connection, float] = {}  # of questions that wait for their answer
        self._said_s = 0.0
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def add(self, sock: socket.socket) -> None:
        """Answer a connection to its end. Any thread may call it."""
        sock.setblocking(False)
        notice_end(sock)
        self._post(lambda: self._begin(_Connection(sock)))

    def close(self) -> None:
        """Hang up on all."""
        self._is_closed = True
        os.eventfd_write(self._wake_fd, 1)
        self._thread.join()
        self._pool.shutdown()
        self._do_posted()  # what threads have opened is closed
        self._selector.close()
        os.close(self._wake_fd)

    def _post(self, what: Callable[[], None]) -> None:
        self._posted.append(what)
        if self._sleeps:  # else it looks before it sleeps
            self._sleeps = False
            os.eventfd_write(self._wake_fd, 1)

    # -- the thread's ----------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._is_closed:
            self._sleeps = True
            self._do_posted()
            ready = self._selector.select(self._say_they_will_come())
            self._sleeps = False
            for key, _ in ready:
                if key.data is None:
                    with contextlib.suppress(BlockingIOError):
                        os.eventfd_read(self._wake_fd)
                else:
                    self._go_on(key.data)
        for connection in tuple(self._connections):
            self._drop(connection)

    def _say_they_will_come(self) -> float | None:
        """Tell those that have waited for a while. Returns the seconds until that is due again; None if
        nobody waits."""
        if not self._asked_s:
            return None
        now = now_s()
        if self._said_s + SAYS_EACH_S <= now:
            self._said_s = now
            for connection, asked_s in self._asked_s.items():
                if SAYS_EACH_S <= now - asked_s <= SAYS_FOR_S:
                    with contextlib.suppress(OSError):  # it has gone: its end will be told
                        connection.sock.send(_WILL_COME)
        return self._said_s + SAYS_EACH_S - now

    def _do_posted(self) -> None:
        while self._posted:
            with contextlib.suppress(Exception):  # of one connection: the others are to be answered
                self._posted.popleft()()

    def _begin(self, connection: _Connection) -> None:
        if self._is_closed:
            connection.sock.close()
            return
        self._connections.add(connection)
        self._go_on(connection)  # TLS may hold what has come

    def _drop(self, connection: _Connection) -> None:
        self._connections.discard(connection)
        self._asked_s.pop(connection, None)
        with contextlib.suppress(KeyError, ValueError, OSError):
            self._selector.unregister(connection.sock)
        connection.sock.close()
        if not connection.waits:  # else the thread has it
            connection.let_go()

    def _go_on(self, connection: _Connection) -> None:
        try:
            if connection.waits:  # its end, most likely: it would be told again and again
                self._listen(connection, 0)
            while not connection.waits:
                if connection.unsent is not None or connection.fd >= 0:
                    self._send(connection)
                else:
                    self._receive(connection)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError, BlockingIOError):
            is_sending = connection.unsent is not None or connection.fd >= 0
            self._listen(connection, selectors.EVENT_WRITE if is_sending else selectors.EVENT_READ)
        except Exception:  # it has gone, or is nobody of ours
            self._drop(connection)

    def _receive(self, connection: _Connection) -> None:
        received = connection.received
        while (end := received.find(b"\r\n\r\n")) < 0:
            piece = connection.sock.recv(_MAX_HEAD_NBYTES)
            if not piece or len(received) > _MAX_HEAD_NBYTES:
                raise ConnectionError
            received += piece
        head = bytes(received[:end])
        del received[: end + 4]
        what, asked = _parsed(head)
        data = self._told(connection, what, asked, may_wait=False)
        if isinstance(data, Later):
            connection.waits, self._asked_s[connection] = True, now_s()
            data.subscribe(lambda: self._post(lambda: self._ask_again(connection, what, asked)))
        else:
            self._take(connection, data, what, asked)

    def _ask_again(self, connection: _Connection, what: str, asked: dict[str, Any]) -> None:
        """Answer what had to be waited for; a thread does if it is not here after all."""
        connection.waits = False
        if connection not in self._connections:
            return
        data = self._told(connection, what, asked, may_wait=False)
        self._take(connection, None if isinstance(data, Later) else data, what, asked)
        self._go_on(connection)

    def _take(
        self, connection: _Connection, data: memoryview | None, what: str, asked: dict[str, Any]
    ) -> None:
        if data is None:
            self._asked_s.setdefault(connection, now_s())
            self._leave_to_thread(connection, partial(self._told_there, connection, what, asked))
        else:
            self._asked_s.pop(connection, None)
            connection.unsent = data

    def _told_there(
        self, connection: _Connection, what: str, asked: dict[str, Any]
    ) -> memoryview | None:
        data = self._told(connection, what, asked, may_wait=True)
        return None if isinstance(data, Later) else data

    def _told(
        self, connection: _Connection, what: str, asked: dict[str, Any], may_wait: bool
    ) -> memoryview | Later | None:
        """Return the start of an answer; of a slice the rest is noted. None if that has to wait."""
        try:
            told = self._answer(what, asked, may_wait)
        except OriginError as error:
            return memoryview(_head(STATUS.get(type(error), 403), Told(_words(error))))
        except Exception as error:  # ours; the other side asks somewhere else
            return memoryview(_head(STATUS[Again], Told(_words(error))))
        if told is None or isinstance(told, Later):
            return told
        if isinstance(told.body, Slice):
            connection.fd, connection.at, connection.end = told.body
        return memoryview(_head(200, told))

    def _leave_to_thread(
        self, connection: _Connection, make: Callable[[], memoryview | None]
    ) -> None:
        """Have a thread make what is sent next."""
        connection.waits = True

        def work() -> None:
            data = None
            with contextlib.suppress(Exception):
                data = make()
            self._post(lambda: self._made(connection, data))

        self._pool.submit(work)

    def _made(self, connection: _Connection, data: memoryview | None) -> None:
        connection.waits = False
        self._asked_s.pop(connection, None)
        if data is None or self._is_closed or connection not in self._connections:
            self._drop(connection)
            return
        connection.unsent = data
        self._go_on(connection)

    def _listen(self, connection: _Connection, events: int) -> None:
        """Have it be told of these events, and no others."""
        before, connection.events = connection.events, events
        if before and events and before != events:
            self._selector.modify(connection.sock, events, connection)
        elif before and not events:
            self._selector.unregister(connection.sock)
        elif events and not before:
            self._selector.register(connection.sock, events, connection)

    def _send(self, connection: _Connection) -> None:
        if connection.unsent is not None:
            if connection.fd >= 0 and self._is_small(connection) and self._add_piece(connection):
                return
            num = connection.sock.send(connection.unsent)
            rest = connection.unsent[num:]
            connection.unsent = rest if rest else None
        elif connection.at == connection.end:
            connection.let_go()
        elif isinstance(connection.sock, ssl.SSLSocket) or self._is_small(connection):
            self._add_piece(connection)
        else:
            self._send_file(connection)

    def _is_small(self, connection: _Connection) -> bool:
        return connection.end - connection.at <= _PIECE_NBYTES

    def _add_piece(self, connection: _Connection) -> bool:
        """Read the next piece of a slice; a thread does if it is not in the kernel's cache. Returns
        whether one does."""
        nbytes = min(connection.end - connection.at, _PIECE_NBYTES)
        before = connection.unsent or memoryview(b"")
        if not nbytes:
            connection.let_go()
            return False
        data = bytearray(len(before) + nbytes)
        data[: len(before)] = before
        room = memoryview(data)[len(before) :]
        try:
            num = os.preadv(connection.fd, [room], connection.at, os.RWF_NOWAIT)
        except OSError:  # it is not there, or nobody can tell
            num = 0
        if num < nbytes:

            def read() -> memoryview:
                at = os.preadv(connection.fd, [room], connection.at)
                if at < nbytes:
                    raise OSError("the file was cut short")  # it ends; the other side asks again
                connection.at += nbytes
                return memoryview(data)

            self._leave_to_thread(connection, read)
            return True
        connection.at += nbytes
        connection.unsent = memoryview(data)
        return False

    def _send_file(self, connection: _Connection) -> None:
        """Send a piece with no copy."""
        fd, at = connection.fd, connection.at
        nbytes = min(connection.end - at, _PIECE_NBYTES)
        try:
            is_here = os.preadv(fd, [bytearray(1)], at + nbytes - 1, os.RWF_NOWAIT) == 1
        except OSError:
            is_here = False
        if not is_here:
            self._add_piece(connection)
            return
        num = os.sendfile(connection.sock.fileno(), fd, at, nbytes)
        if not num:
            raise OSError("the file was cut short")
        connection.at += num


def _words(error: Exception) -> bytes:
    return str(error).encode(errors="replace")


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


def _head(status: int, told: Told) -> bytes:
    """Return an answer, but for the bytes of a slice."""
    body = told.body
    nbytes = body.end - body.start if isinstance(body, Slice) else len(body)
    head = f"HTTP/1.1 {status} {'OK' if status == 200 else 'NO'}\r\nContent-Length: {nbytes}\r\n"
    if told.entry is not None:
        head += f"Entry: {json.dumps(told.entry)}\r\n"
    start = f"{head}\r\n".encode()
    return start if isinstance(body, Slice) else start + body
