"""Compiles functions with numba when they are declared: takes seconds, needs no compiler.

The machine code is kept in NUMBA_CACHE_DIR if that is set, else in $XDG_CACHE_HOME/stoker/kernels
(~/.cache/stoker/kernels); if that cannot be written, each process compiles for itself.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar, cast

import numba

_numba_config: Any = numba.config  # its names are made at run time
_Kernel = TypeVar("_Kernel", bound=Callable[..., Any])


def _folder() -> str | None:
    """Return the folder in which numba keeps machine code; None if nothing can be kept."""
    if _numba_config.CACHE_DIR:
        return str(_numba_config.CACHE_DIR)
    root = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    folder = Path(os.path.expanduser(root), "stoker", "kernels")  # noqa: PTH111 - raises nothing
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return None
    return str(folder) if folder.is_absolute() and os.access(folder, os.W_OK) else None


FOLDER = _folder()


@contextmanager
def _kept_in_folder() -> Iterator[None]:
    """Set numba's cache folder while a function is declared; the script's functions keep theirs."""
    before, _numba_config.CACHE_DIR = _numba_config.CACHE_DIR, FOLDER or ""
    try:
        yield
    finally:
        _numba_config.CACHE_DIR = before


def kernel(*signatures: str) -> Callable[[_Kernel], _Kernel]:
    """Compile now, or load from the cache. Without signatures: compile as a part of the callers."""

    def compiled(function: _Kernel) -> _Kernel:
        with _kept_in_folder():
            cache = FOLDER is not None and bool(signatures)
            # A float that is divided by zero is what IEEE says; a check of it would stop vector code.
            made: Any = numba.njit(
                list(signatures) or None, nogil=True, cache=cache, error_model="numpy"
            )(function)
        return cast(_Kernel, made)

    return compiled
