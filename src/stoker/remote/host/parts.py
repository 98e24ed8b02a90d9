"""Holds parts of jobs in the memory of one machine, in unnamed files that its hosts share.

    part | part | ... | table | nbytes of the table        each part from a page's beginning

Promise: a bundle is whole, and sealed before another process sees it, so that it cannot be changed
any more. A process that writes to a mapped part gets pages of its own there. Memory is free again
when the last process has closed it, or has ended in any way.
"""

import ctypes
import errno
import fcntl
import json
import mmap
import os
import struct
from collections.abc import Iterable

from stoker.remote.net.ship import Part

PAGE = mmap.PAGESIZE
MOST_TRIES = 10  # to seal a bundle: 1.5 s, in which the trainer does not take its host for dead
SEALS = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE
_LENGTH = struct.Struct("<Q")
_NORESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000)  # Linux; named in mmap from Python 3.13 on
_FAILED = ctypes.c_void_p(-1).value

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [
    ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long,
]  # fmt: skip
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


def _map(fd: int, nbytes: int, flags: int, start: int = 0) -> int:
    """Map a file's bytes; returns their address. Raises OSError.

    Does not use Python's mmap: that keeps a descriptor, and with it the memory, in every forked
    process; and an array over it is taken for a view of a file that others may write to.
    """
    address = _libc.mmap(None, nbytes, mmap.PROT_READ | mmap.PROT_WRITE, flags, fd, start)
    if address == _FAILED:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return int(address)


def _view(address: int, nbytes: int) -> memoryview:
    return memoryview((ctypes.c_ubyte * nbytes).from_address(address)).cast("B")


class Bundle:
    """A sealed file of parts that have come. fd: is owned from now on.

    Raises ValueError if that is not a bundle, or one that could still be changed.
    """

    def __init__(self, fd: int) -> None:
        self.fd = fd
        try:
            self._places = _read_table(fd)
        except (ValueError, OSError, struct.error):
            os.close(fd)
            raise ValueError("not a sealed bundle") from None
        self.nbytes = sum(nbytes for _, nbytes in self._places.values())

    def __contains__(self, digest: str) -> bool:
        return digest in self._places

    @property
    def digests(self) -> set[str]:
        return set(self._places)

    def map(self, digest: str) -> memoryview:
        """Map a part, to be written to by this process alone; it stays until the process ends.

        Raises OSError.
        """
        start, nbytes = self._places[digest]
        return _view(_map(self.fd, nbytes, mmap.MAP_PRIVATE | _NORESERVE, start), nbytes)

    def close(self) -> None:
        os.close(self.fd)


def _read_table(fd: int) -> dict[str, tuple[int, int]]:
    """Read start and nbytes of each part. Raises ValueError, OSError, struct.error."""
    if fcntl.fcntl(fd, fcntl.F_GET_SEALS) & SEALS != SEALS:
        raise ValueError
    end = os.fstat(fd).st_size - _LENGTH.size
    (nbytes,) = _LENGTH.unpack(os.pread(fd, _LENGTH.size, end))
    if not 0 < nbytes <= end:
        raise ValueError
    places = {}
    for digest, part_nbytes, start in json.loads(os.pread(fd, nbytes, end - nbytes)):
        if part_nbytes <= 0 or start < 0 or start % PAGE or start + part_nbytes > end - nbytes:
            raise ValueError
        places[str(digest)] = int(start), int(part_nbytes)
    return places


def _add_seals(fd: int) -> None:
    """Seal a file. Raises OSError.

    The kernel refuses that while anybody holds a page of it, and waits 0.15 s at most (mm/memfd.c,
    `memfd_wait_for_pins`); whoever reclaims or moves pages holds some for a while.
    """
    for _ in range(MOST_TRIES - 1):
        try:
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, SEALS)
        except OSError as error:
            if error.errno != errno.EBUSY:
                raise
        else:
            return
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, SEALS)


class Coming:
    """A bundle that is being received, asked for under a job's number. Raises OSError."""

    def __init__(self, job: int, parts: Iterable[Part]) -> None:
        self.job = job
        self._places: dict[str, tuple[int, int]] = {}
        end = 0
        for part in parts:
            self._places[part.digest] = end, part.nbytes
            end += -(-part.nbytes // PAGE) * PAGE
        self._missing = set(self._places)
        self._end = end
        self._fd = os.memfd_create("stoker-parts", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(self._fd, end)
            self._address = _map(self._fd, end, mmap.MAP_SHARED)
        except OSError:
            os.close(self._fd)
            raise
        # A process that is forked meanwhile would hold a mapping by which the bundle can be
        # written to, and it could not be sealed.
        _libc.madvise(self._address, end, mmap.MADV_DONTFORK)

    def __contains__(self, digest: str) -> bool:
        return digest in self._missing

    @property
    def is_whole(self) -> bool:
        return not self._missing

    def room(self, digest: str, nbytes: int) -> memoryview | None:
        """Return the memory for a part; None if it has not that length."""
        start, expected_nbytes = self._places[digest]
        return _view(self._address + start, nbytes) if nbytes == expected_nbytes else None

    def took(self, digest: str) -> None:
        self._missing.discard(digest)

    def seal(self) -> Bundle:
        """Seal a bundle that is whole, and of which no view is left. Raises OSError, and lets go of it."""
        table = json.dumps([[d, nbytes, start] for d, (start, nbytes) in self._places.items()])
        _libc.munmap(self._address, self._end)
        try:
            os.pwrite(self._fd, table.encode() + _LENGTH.pack(len(table.encode())), self._end)
            _add_seals(self._fd)
        except OSError:
            os.close(self._fd)
            raise
        return Bundle(self._fd)

    def drop(self) -> None:
        _libc.munmap(self._address, self._end)
        os.close(self._fd)

    def abandon(self) -> None:
        """Close the descriptor in a forked child, which does not have the mapping."""
        os.close(self._fd)
