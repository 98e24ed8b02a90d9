"""Whose children processes become when their parents have ended.

Promise: standard library only; raises nothing.
"""

import ctypes
import os

_PR_GET_CHILD_SUBREAPER = 37

_libc = ctypes.CDLL(None)  # opened before any fork: dlopen takes locks


def come_here() -> bool:
    """Whether orphans become this process's children: it is PID 1, or a subreaper (prctl(2))."""
    is_subreaper = ctypes.c_int(0)
    _libc.prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(is_subreaper), 0, 0, 0)
    return os.getpid() == 1 or bool(is_subreaper.value)
