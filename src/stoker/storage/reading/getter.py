"""Sends many GETs at once on one thread, over connections that are kept.

With a thread a request, as http.client wants it, a file of 40 KB costs 450 us, most of it to hand the
interpreter's lock from thread to thread; here 60 (decision 039). It makes one try of each request, and takes
plain answers only: what else comes (a redirect, an error, chunks, a connection that breaks) is handed to
whoever has the time to look at it.
Owner: its thread owns all but `wake`.
"""

import contextlib
import os
import selectors
import socket
import ssl
import threading
from collections import defaultdict, deque
from collections.abc import Callable
from typing import Any, NamedTuple

from stoker.clock import now_s
from stoker.storage.origins import Answer, Get, tls_context

_READ_NBYTES = 256 << 10
_MAX_HEAD_NBYTES = 16 << 10
MAX_IDLE = 256  # connections that are kept, in all
_PLAIN = (200, 206, 304, 403, 404, 410, 412, 416)
_INTERIM = b"HTTP/1.1 1"
_MAX_ERROR_NBYTES = 64 << 10  # of a page that explains one


class Request(NamedTuple):
    """get: what to send; done: called on the getter's thread, with None if there was no plain answer."""

    get: Get
    done: Callable[[Answer | None], None]


class _Connection:
    """A connection, and the request that is on its way there."""

    def __init__(self, place: tuple[str, str, int], sock: socket.socket, is_ready: bool) -> None:
        """is_ready: connected, and TLS agreed on."""
        self.place, self.sock, self.is_ready = place, sock, is_ready
        self.is_fresh = True  # has answered nothing yet
        self.is_promised = False  # it was said that the answer will come
        self.request: Request | None = None
        self.unsent = b""
        self.head = bytearray()
        self.headers: dict[bytes, bytes] | None = None
        self.status = 0
        self.buffer = bytearray()  # of bodies that are small: a new one would be cleared first
        self.body: bytes | bytearray | memoryview = b""
        self.rest = memoryview(bytearray())  # of it, that has not come
        self.heard_s = now_s()


class Getter:
    """take: returns the next request, or None if there is none now, or too many are on their way; called on
    the getter's thread."""

    def __init__(self, take: Callable[[], Request | None]) -> None:
        self._take = take
        self._selector = selectors.EpollSelector()
        self._wake_fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._selector.register(self._wake_fd, selectors.EVENT_READ, None)
        self._idle: defaultdict[tuple[str, str, int], list[_Connection]] = defaultdict(list)
        self._num_idle = 0
        self._busy: set[_Connection] = set()
        self._dialled: deque[tuple[Request, socket.socket | None]] = deque()
        self._addresses: dict[tuple[str, int], deque[tuple[int, Any]]] = {}
        self._due_s = 0.0  # the next look at timeouts
        self._tls: ssl.SSLContext | None = None
        self._is_closed = self._sleeps = False
        self._buffer = memoryview(bytearray(_READ_NBYTES))
        self._thread = threading.Thread(target=self._run, name="storage-get", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """Have it look for requests; called by any thread."""
        if self._sleeps and not self._is_closed:  # else it looks by itself before it sleeps
            self._sleeps = False
            os.eventfd_write(self._wake_fd, 1)

    def close(self) -> None:
        """End the thread and its connections; requests on their way are lost."""
        self._is_closed = True
        os.eventfd_write(self._wake_fd, 1)
        self._thread.join()
        os.close(self._wake_fd)
        self._hang_up()

    # -- the thread's ----------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._serve()
        finally:
            for connection in {
                *self._busy,
                *(each for idle in self._idle.values() for each in idle),
            }:
                connection.sock.close()
            self._selector.close()

    def _serve(self) -> None:
        while not self._is_closed:
            self._take_dialled()
            self._send_all()
            self._sleeps = True
            self._take_dialled()  # what came meanwhile woke nobody
            self._send_all()
            ready = self._selector.select(1.0)
            self._sleeps = False
            for key, events in ready:
                if key.data is None:
                    with contextlib.suppress(BlockingIOError):
                        os.eventfd_read(self._wake_fd)
                else:
                    self._go_on(key.data, events)
            if now_s() > self._due_s:
                self._due_s = now_s() + 1.0
                self._check_timeouts()

    def _send_all(self) -> None:
        while (request := self._take()) is not None:
            self._send(request)

    def _check_timeouts(self) -> None:
        now = now_s()
        for connection in tuple(self._busy):
            request = connection.request
            if request is not None and connection.heard_s < now - request.get.silent_s:
                self._give_up(connection)

    def _give_up(self, connection: _Connection) -> None:
        """Take a place for dead that says nothing: what is kept there says nothing either."""
        request, connection.request = connection.request, None
        self._busy.discard(connection)
        self._drop(connection)
        for idle in self._idle.pop(connection.place, ()):
            self._num_idle -= 1
            self._drop(idle)
        if request is not None:
            request.done(None)

    def _send(self, request: Request) -> None:
        place = request.get.place
        idle = self._idle[place]
        if idle:
            self._num_idle -= 1
            self._send_on(idle.pop(), request)
        elif request.get.dial is not None:
            try:
                threading.Thread(target=self._dial, args=(request,), daemon=True).start()
            except RuntimeError:  # there are too many
                request.done(None)
        else:
            try:
                connection = self._connect(place)
            except OSError:
                request.done(None)
            else:
                self._send_on(connection, request)

    def _dial(self, request: Request) -> None:
        """Dial a place, on a thread of its own: its handshakes wait for the other side."""
        assert request.get.dial is not None
        sock = None
        with contextlib.suppress(Exception):  # there is no answer, then
            sock = request.get.dial()
        self._dialled.append((request, sock))
        if self._is_closed:
            self._hang_up()
        self.wake()

    def _hang_up(self) -> None:
        """Close what was dialled and is of no use any more."""
        with contextlib.suppress(IndexError):
            while True:
                _, sock = self._dialled.popleft()
                if sock is not None:
                    sock.close()

    def _take_dialled(self) -> None:
        while self._dialled:
            request, sock = self._dialled.popleft()
            if sock is None:
                request.done(None)
                continue
            sock.setblocking(False)
            connection = _Connection(request.get.place, sock, is_ready=True)
            self._selector.register(sock, selectors.EVENT_READ, connection)
            self._send_on(connection, request)

    def _send_on(self, connection: _Connection, request: Request) -> None:
        connection.request, connection.unsent = request, request.get.head
        connection.is_promised = False
        connection.heard_s = now_s()
        self._busy.add(connection)
        if connection.is_ready:
            self._go_on(connection, selectors.EVENT_WRITE)

    def _connect(self, place: tuple[str, str, int]) -> _Connection:
        _, host, port = place
        found = self._addresses.get((host, port))
        if not found:
            told = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            found = self._addresses[host, port] = deque((int(each[0]), each[4]) for each in told)
        family, address = found[0]
        sock = socket.socket(family, socket.SOCK_STREAM)
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with contextlib.suppress(BlockingIOError):
            sock.connect(address)
        connection = _Connection(place, sock, is_ready=False)
        self._selector.register(sock, selectors.EVENT_WRITE, connection)
        return connection

    def _go_on(self, connection: _Connection, events: int) -> None:
        try:
            if not connection.is_ready and not self._is_agreed(connection):
                return
            if connection.unsent:
                self._write(connection)
            if events & selectors.EVENT_READ:
                self._read(connection)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError, BlockingIOError):
            return
        except (OSError, ValueError):
            self._fail(connection)

    def _is_agreed(self, connection: _Connection) -> bool:
        """Whether a connection can be used now. Raises OSError if it will never be."""
        sock = connection.sock
        if not isinstance(sock, ssl.SSLSocket):
            if error := sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                raise OSError(error, os.strerror(error))
            if connection.place[0] == "https":
                sock = self._with_tls(connection)
        if isinstance(sock, ssl.SSLSocket):
            try:
                sock.do_handshake()
            except ssl.SSLWantReadError:
                self._selector.modify(sock, selectors.EVENT_READ, connection)
                return False
            except ssl.SSLWantWriteError:
                self._selector.modify(sock, selectors.EVENT_WRITE, connection)
                return False
        connection.is_ready = True
        self._selector.modify(sock, selectors.EVENT_READ, connection)
        return True

    def _with_tls(self, connection: _Connection) -> ssl.SSLSocket:
        """Begin TLS on a connection, once it is there: before, there is nobody to begin it with."""
        if self._tls is None:
            self._tls = tls_context()
        self._selector.unregister(connection.sock)
        host = connection.place[1]
        sock = self._tls.wrap_socket(
            connection.sock, server_hostname=host, do_handshake_on_connect=False
        )
        connection.sock = sock
        self._selector.register(sock, selectors.EVENT_WRITE, connection)
        return sock

    def _write(self, connection: _Connection) -> None:
        num = connection.sock.send(connection.unsent)
        connection.unsent = connection.unsent[num:]  # some hundred bytes: they go at once

    def _read(self, connection: _Connection) -> None:
        while connection.headers is None:  # until nothing is left: TLS may hold more of it
            num = connection.sock.recv_into(self._buffer)
            if not num or connection.request is None:  # the server ends what it had kept
                raise OSError("closed")
            connection.heard_s = now_s()
            data = self._buffer[:num]
            if connection.head:  # half of it came before
                connection.head += data
                data = memoryview(bytes(connection.head))
            data, is_promised = _without_interim(data)
            connection.is_promised |= is_promised
            if not _take_head(connection, data):
                connection.head[:] = data
        while connection.rest:
            num = connection.sock.recv_into(connection.rest)
            if not num:
                raise OSError("cut short")
            connection.rest = connection.rest[num:]
            connection.heard_s = now_s()
        self._done(connection)

    def _done(self, connection: _Connection) -> None:
        request, headers = connection.request, connection.headers
        assert request is not None and headers is not None
        body = connection.body
        answer = Answer(
            connection.status, headers, bytes(body) if isinstance(body, memoryview) else body
        )
        connection.request, connection.headers, connection.is_fresh = None, None, False
        connection.head.clear()
        self._busy.discard(connection)
        if headers.get(b"connection", b"").lower() == b"close":
            self._drop(connection)
        else:
            self._keep_idle(connection)
        request.done(answer)

    def _keep_idle(self, connection: _Connection) -> None:
        self._idle[connection.place].append(connection)
        self._num_idle += 1
        if self._num_idle > MAX_IDLE:
            most = max(self._idle.values(), key=len)
            self._num_idle -= 1
            self._drop(most.pop(0))

    def _fail(self, connection: _Connection) -> None:
        request, connection.request = connection.request, None
        if connection.is_fresh and not connection.is_ready:  # another address may answer
            self._addresses.get(connection.place[1:], deque()).rotate()
        self._busy.discard(connection)
        idle = self._idle[connection.place]
        if connection in idle:
            idle.remove(connection)
            self._num_idle -= 1
        self._drop(connection)
        if request is None:
            return
        has_begun = connection.is_promised or connection.head or connection.headers is not None
        if connection.is_fresh or has_begun:
            request.done(None)
        else:  # the server has ended what it kept: no failure yet
            self._send(request)

    def _drop(self, connection: _Connection) -> None:
        with contextlib.suppress(KeyError, ValueError, OSError):
            self._selector.unregister(connection.sock)
        connection.sock.close()


def _room(connection: _Connection, nbytes: int) -> memoryview:
    """Return where a body is to be received."""
    if nbytes > _READ_NBYTES:
        connection.body = bytearray(nbytes)
        return memoryview(connection.body)
    if len(connection.buffer) < nbytes:
        connection.buffer = bytearray(nbytes)
    room = connection.body = memoryview(connection.buffer)[:nbytes]
    return room


def _without_interim(data: memoryview) -> tuple[memoryview, bool]:
    """Return what follows answers that say that there will be one (RFC 9110, 15.2), and whether there were."""
    is_promised = False
    while data[: len(_INTERIM)] == _INTERIM and (end := bytes(data).find(b"\r\n\r\n")) >= 0:
        data, is_promised = data[end + 4 :], True
    return data, is_promised


def _take_head(connection: _Connection, data: memoryview) -> bool:
    """Parse an answer's head, once it is there, and take what there is of its body. Returns whether it is;
    raises ValueError unless it is a plain one."""
    seen = bytes(data[:_MAX_HEAD_NBYTES])
    end = seen.find(b"\r\n\r\n")
    if end < 0:
        if len(data) > _MAX_HEAD_NBYTES:
            raise ValueError("too long a head")
        return False
    first, *lines = seen[:end].split(b"\r\n")
    version, _, rest = first.partition(b" ")
    status = int(rest[:3])
    headers = {}
    for line in lines:
        name, _, value = line.partition(b":")
        headers[name.lower()] = value.strip()
    if version != b"HTTP/1.1" or status not in _PLAIN or b"transfer-encoding" in headers:
        raise ValueError("not a plain answer")
    nbytes = int(headers[b"content-length"]) if b"content-length" in headers else -1
    if status == 304:
        nbytes = 0  # it has no body, whatever it says (RFC 9110, 15.4.5)
    got = data[end + 4 :]
    wanted = connection.request.get.most_nbytes if connection.request is not None else 0
    if status >= 400:
        wanted = _MAX_ERROR_NBYTES
    if not len(got) <= nbytes <= wanted:
        raise ValueError("not the length that was asked for")
    if len(got) == nbytes:
        connection.body, connection.rest = bytes(got), memoryview(b"")
    else:
        room = _room(connection, nbytes)
        room[: len(got)] = got
        connection.rest = room[len(got) :]
    connection.status, connection.headers = status, headers
    return True
