"""Sends files of this machine to other machines' storage processes: those below the datasets' own roots.

Promise: nothing outside a root is opened, whatever a path or a link says: the kernel resolves each path
beneath the root (openat2(2), RESOLVE_BENEATH; Linux 5.6); nothing but regular files is read, and nothing
is written. Who asks has proved the run's token.
Threads: those of Answering.
"""

import contextlib
import ctypes
import errno
import json
import os
import socket
import stat
import threading
from collections.abc import Iterator, Sequence
from typing import Any

from stoker.storage.asking.roots import SECRET
from stoker.storage.origins import Again, Changed, Denied, Entry, Missing, OriginError
from stoker.storage.peers.answering import Answering, Slice, Told

_OPENAT2 = 437  # the same number on every architecture
_RESOLVE_NO_MAGICLINKS, _RESOLVE_BENEATH = 0x02, 0x08
_RESOLVE_CACHED = 0x20  # EAGAIN rather than to wait for a disk; Linux 5.12
_MAX_READ_NBYTES = 64 << 20
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
        self._lock = threading.Lock()  # guards num_nbytes and _root_fds
        self._root_fds: dict[str, int] = {}
        self._answering = Answering("files", self._answer)

    def serve(self, sock: socket.socket) -> None:
        """Serve a connection until it ends."""
        self._answering.add(sock)

    def close(self) -> None:
        self._answering.close()
        for fd in self._root_fds.values():
            os.close(fd)

    def _answer(self, what: str, asked: dict[str, Any], may_wait: bool) -> Told | None:
        """Return what is asked for; None if that may have to wait, and may not. Raises OriginError."""
        try:
            root, path = str(asked["root"]), str(asked["path"])
            if what == "read":
                start, end, known = int(asked["start"]), int(asked["end"]), Entry(*asked["known"])
                return self._read(root, path, start, end, known, may_wait)
        except (KeyError, TypeError, ValueError) as error:
            raise Denied(f"not understood: {error}") from None
        if not may_wait:
            return None
        return self._list(root, path) if what == "list" else self._look(root, path)

    def _open(self, root: str, path: str, resolve: int = 0) -> int:
        """Open a path beneath a root. resolve: further flags of openat2. Raises OriginError."""
        if root not in self.roots:
            raise Denied("no dataset of the run has this root")
        if SECRET & set(path.split("/")):
            raise Denied("such files are not sent")
        fd = _open_beneath(self._root_fd(root, is_new=not resolve), path or ".", resolve)
        mode = os.fstat(fd).st_mode
        if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
            os.close(fd)
            raise Denied("it is neither a file nor a folder")
        return fd

    def _root_fd(self, root: str, is_new: bool) -> int:
        """Return a root's descriptor. is_new: of the folder that is there now. Raises OriginError."""
        with self._lock:
            fd = self._root_fds.get(root, -1)
            if is_new or fd < 0:
                try:
                    opened = os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
                except OSError as error:
                    raise Missing(error.strerror or "") from None
                if fd >= 0 and os.path.sameopenfile(fd, opened):
                    os.close(opened)
                else:  # the old one stays open: another thread may use it
                    fd = self._root_fds[root] = opened
            return fd

    def _list(self, root: str, path: str) -> Told:
        """Return the entries of a folder. Left out: links that leave the root or lead nowhere, and what is no
        file or folder. Raises OriginError."""
        with self._opened(root, path) as fd:
            found = {}
            try:
                names = os.listdir(fd)  # noqa: PTH208  # a descriptor
            except NotADirectoryError as error:
                raise Missing(error.strerror or "") from None
            except OSError as error:
                raise Again(error.strerror or "") from None
            for name in names:
                with contextlib.suppress(FileNotFoundError):  # removed just now
                    told = os.stat(name, dir_fd=fd, follow_symlinks=False)
                    if stat.S_ISLNK(told.st_mode):
                        told = self._behind_link(root, f"{path}/{name}".lstrip("/")) or told
                    if stat.S_ISREG(told.st_mode) or stat.S_ISDIR(told.st_mode):
                        found[name] = _entry(told)
        return Told(json.dumps(found).encode())

    def _behind_link(self, root: str, path: str) -> os.stat_result | None:
        """Return what a link leads to; None if that is nothing that may be sent. Raises Again if it cannot
        be told now."""
        try:
            with self._opened(root, path) as fd:
                return os.fstat(fd)
        except Again:
            raise
        except OriginError:
            return None

    def _look(self, root: str, path: str) -> Told:
        with self._opened(root, path) as fd:
            return Told(entry=_entry(os.fstat(fd)))

    def _read(
        self, root: str, path: str, start: int, end: int, known: Entry, may_wait: bool
    ) -> Told | None:
        """Return a piece of a file. Raises OriginError unless it is the one that is known."""
        try:
            fd = self._open(root, path, 0 if may_wait else _RESOLVE_CACHED)
        except OriginError:
            if may_wait:
                raise
            return None  # the disk knows better
        try:
            now = _entry(os.fstat(fd))
            if now != known:
                raise Changed("it was modified meanwhile")
            if (
                now.is_folder
                or not 0 <= start <= end <= now.nbytes
                or end - start > _MAX_READ_NBYTES
            ):
                raise Denied("no such range")
        except BaseException:
            os.close(fd)
            raise
        with self._lock:
            self.num_nbytes += end - start
        return Told(Slice(fd, start, end))

    @contextlib.contextmanager
    def _opened(self, root: str, path: str) -> Iterator[int]:
        fd = self._open(root, path)
        try:
            yield fd
        finally:
            os.close(fd)


def _open_beneath(root_fd: int, path: str, resolve: int) -> int:
    # Not to wait for whoever opens the other end of a FIFO.
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    how = _OpenHow(flags, 0, _RESOLVE_BENEATH | _RESOLVE_NO_MAGICLINKS | resolve)
    name = os.fsencode(path)
    if b"\0" in name:
        raise Missing("no such name")
    code = errno.EAGAIN
    for _ in range(_NUM_TRIES):  # EAGAIN: something on the way was renamed just then (openat2(2))
        fd = int(_libc.syscall(_OPENAT2, root_fd, name, ctypes.byref(how), ctypes.sizeof(how)))
        if fd >= 0:
            return fd
        code = ctypes.get_errno()
        if code != errno.EAGAIN or resolve:
            break
    if code in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG):
        raise Missing(os.strerror(code))
    if code in (errno.EXDEV, errno.EACCES, errno.EPERM, errno.ENXIO, errno.ENODEV):
        raise Denied(_OUTSIDE if code == errno.EXDEV else os.strerror(code))
    if code == errno.ENOSYS:
        raise Denied("the trainer's machine needs Linux 5.6 or later to send files")
    raise Again(os.strerror(code))  # too many open files, ...


def _entry(told: os.stat_result) -> Entry:
    if stat.S_ISDIR(told.st_mode):
        return Entry(True)
    return Entry(False, told.st_size, told.st_mtime_ns, f"{told.st_ino}-{told.st_ctime_ns}")
