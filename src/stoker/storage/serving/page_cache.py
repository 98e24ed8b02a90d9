"""Tells whether the kernel has a file's bytes in its page cache: then nothing need be fetched.

Source: cachestat(2), Linux 6.5; before that it is not known, and taken for no.
"""

import ctypes
import os

_CACHESTAT = 451  # the same number on every architecture
_PAGE_NBYTES = os.sysconf("SC_PAGE_SIZE")
_libc = ctypes.CDLL(None, use_errno=True)


class _Range(ctypes.Structure):
    _fields_ = (("offset", ctypes.c_uint64), ("nbytes", ctypes.c_uint64))


class _Found(ctypes.Structure):
    _fields_ = tuple(
        (name, ctypes.c_uint64)
        for name in ("cached", "dirty", "writeback", "evicted", "recently_evicted")
    )


def is_cached(folder_fd: int, path: str, start: int, nbytes: int) -> bool:
    """Whether so many bytes of a file, from start on, are cached. path: in that folder, of the mount itself and
    not of what covers it; nbytes: negative: not known, which is a no."""
    if nbytes <= 0:
        return False
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC, dir_fd=folder_fd)
    except OSError:
        return False
    found = _Found()
    try:
        before = start % _PAGE_NBYTES
        nbytes += before
        asked = _Range(start - before, nbytes)
        refused = _libc.syscall(_CACHESTAT, fd, ctypes.byref(asked), ctypes.byref(found), 0)
    finally:
        os.close(fd)
    return not refused and found.cached * _PAGE_NBYTES >= nbytes
