"""Sends files of this machine to other machines' storage processes: those below the datasets' own roots.

Promise: nothing outside a root is opened, whatever a path or a link says: the kernel resolves each path
beneath the root (openat2(2), RESOLVE_BENEATH; Linux 5.6); nothing but regular files is read, and nothing
is written. Who asks has proved the run's token.
Threads: one a connection.
"""

import contextlib
import ctypes
import errno
import json
import os
import socket
import ssl
import stat
import threading
from collections.abc import Sequence
from typing import Any

from stoker.storage.asking.roots import SECRET
from stoker.storage.origins import Entry
from stoker.storage.origins.host import LENGTH

_OPENAT2 = 437  # the same number on every architecture
_RESOLVE_NO_MAGICLINKS, _RESOLVE_BENEATH = 0x02, 0x08
_MAX_ASKED_NBYTES = 64 << 10
_MAX_READ_NBYTES = 64 << 20
_PIECE_NBYTES = 256 << 10
_NUM_TRIES = 16
_OUTSIDE = "it lies outside of the root"
_libc = ctypes.CDLL(None, use_errno=True)


class _OpenHow(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


class FileServer:
    """roots: folders, absolute, by which they are asked for."""

    def __init__(self, roots: Sequence[str]) -> None:
        self.roots = tuple(roots)
        self.num_nbytes = 0  # sent
        self._lock = threading.Lock()  # guards num_nbytes

    def serve(self, sock: socket.socket) -> None:
        """Serve a connection until it ends, on a thread."""
        threading.Thread(target=self._serve, args=(sock,), name="files", daemon=True).start()

    def _serve(self, sock: socket.socket) -> None:
        with sock, contextlib.suppress(OSError, ValueError):
            sock.settimeout(None)
            with contextlib.suppress(OSError):  # no TCP: a machine that vanishes says no goodbye
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 30)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 10)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 60_000)
            while head := _receive(sock, LENGTH.size):
                (nbytes,) = LENGTH.unpack(head)
                if nbytes > _MAX_ASKED_NBYTES:
                    return
                self._answer(sock, json.loads(_receive(sock, nbytes)))

    def _answer(self, sock: socket.socket, asked: dict[str, Any]) -> None:
        fd = -1
        try:
            root, path = str(asked["root"]), str(asked["path"])
            fd = self._open(root, path)
            if asked["what"] == "list":
                _say(sock, kind="ok", entries=self._list(fd, root, path))
            elif asked["what"] == "look":
                _say(sock, kind="ok", entry=_entry(os.fstat(fd)))
            else:
                self._send(sock, fd, int(asked["start"]), int(asked["end"]), Entry(*asked["known"]))
        except _Refused as error:
            _say(sock, kind=error.kind, why=str(error))
        except (KeyError, TypeError) as error:
            _say(sock, kind="denied", why=f"not understood: {error}")
        finally:
            if fd >= 0:
                os.close(fd)

    def _open(self, root: str, path: str) -> int:
        """Open a path beneath a root. Raises _Refused."""
        if root not in self.roots:
            raise _Refused("denied", "no dataset of the run has this root")
        if SECRET & set(path.split("/")):
            raise _Refused("denied", "such files are not sent")
        try:
            root_fd = os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise _Refused("missing", error.strerror or "") from None
        try:
            fd = _open_beneath(root_fd, path or ".")
        finally:
            os.close(root_fd)
        mode = os.fstat(fd).st_mode
        if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
            os.close(fd)
            raise _Refused("denied", "it is neither a file nor a folder")
        return fd

    def _list(self, fd: int, root: str, path: str) -> dict[str, list[Any]]:
        """Return the entries of a folder. Left out: links that leave the root or lead nowhere, and what is no
        file or folder. Raises _Refused."""
        found = {}
        try:
            names = os.listdir(fd)
        except NotADirectoryError as error:
            raise _Refused("missing", error.strerror or "") from None
        except OSError as error:
            raise _Refused("again", error.strerror or "") from None
        for name in names:
            with contextlib.suppress(FileNotFoundError):  # removed just now
                told = os.stat(name, dir_fd=fd, follow_symlinks=False)
                if stat.S_ISLNK(told.st_mode):
                    told = self._behind_link(root, f"{path}/{name}".lstrip("/")) or told
                if stat.S_ISREG(told.st_mode) or stat.S_ISDIR(told.st_mode):
                    found[name] = _entry(told)
        return found

    def _behind_link(self, root: str, path: str) -> os.stat_result | None:
        """Return what a link leads to; None if that is nothing that may be sent. Raises _Refused if it
        cannot be told now."""
        try:
            fd = self._open(root, path)
        except _Refused as error:
            if error.kind == "again":
                raise
            return None
        try:
            return os.fstat(fd)
        finally:
            os.close(fd)

    def _send(self, sock: socket.socket, fd: int, start: int, end: int, known: Entry) -> None:
        now = Entry(*_entry(os.fstat(fd)))
        if now != known:
            raise _Refused("changed", "it was modified meanwhile")
        if now.is_folder or not 0 <= start <= end <= now.nbytes or end - start > _MAX_READ_NBYTES:
            raise _Refused("denied", "no such range")
        _say(sock, kind="ok", nbytes=end - start)
        with self._lock:
            self.num_nbytes += end - start
        while start < end:
            start += _send_piece(sock, fd, start, end)


class _Refused(Exception):
    """What is answered in place of what was asked for. kind: see ERRORS (storage/origins/host.py)."""

    def __init__(self, kind: str, why: str) -> None:
        super().__init__(why)
        self.kind = kind


def _open_beneath(root_fd: int, path: str) -> int:
    # Not to wait for whoever opens the other end of a FIFO.
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    how = _OpenHow(flags, 0, _RESOLVE_BENEATH | _RESOLVE_NO_MAGICLINKS)
    name = os.fsencode(path)
    if b"\0" in name:
        raise _Refused("missing", "no such name")
    code = errno.EAGAIN
    for _ in range(_NUM_TRIES):  # EAGAIN: something on the way was renamed just then (openat2(2))
        fd = int(_libc.syscall(_OPENAT2, root_fd, name, ctypes.byref(how), ctypes.sizeof(how)))
        if fd >= 0:
            return fd
        code = ctypes.get_errno()
        if code != errno.EAGAIN:
            break
    if code in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG):
        raise _Refused("missing", os.strerror(code))
    if code in (errno.EXDEV, errno.EACCES, errno.EPERM, errno.ENXIO, errno.ENODEV):
        raise _Refused("denied", _OUTSIDE if code == errno.EXDEV else os.strerror(code))
    if code == errno.ENOSYS:
        raise _Refused("denied", "the trainer's machine needs Linux 5.6 or later to send files")
    raise _Refused("again", os.strerror(code))  # too many open files, ...


def _entry(told: os.stat_result) -> list[Any]:
    if stat.S_ISDIR(told.st_mode):
        return list(Entry(True))
    return list(Entry(False, told.st_size, told.st_mtime_ns, f"{told.st_ino}-{told.st_ctime_ns}"))


def _send_piece(sock: socket.socket, fd: int, start: int, end: int) -> int:
    if isinstance(sock, ssl.SSLSocket):
        piece = os.pread(fd, min(end - start, _PIECE_NBYTES), start)
        sock.sendall(piece)
        num = len(piece)
    else:
        num = os.sendfile(sock.fileno(), fd, start, end - start)
    if not num:  # cut short meanwhile: the other side sees no end of it, and asks again
        raise OSError(errno.EIO, "the file was cut short")
    return num


def _say(sock: socket.socket, nbytes: int = 0, **told: Any) -> None:
    said = json.dumps({"nbytes": nbytes, **told}).encode()
    sock.sendall(LENGTH.pack(len(said)) + said)


def _receive(sock: socket.socket, nbytes: int) -> bytes:
    """Return so many bytes; none if the connection ends before the first of them."""
    data = b""
    while len(data) < nbytes:
        piece = sock.recv(nbytes - len(data))
        if not piece:
            if data:
                raise ConnectionError("cut short")
            return b""
        data += piece
    return data
