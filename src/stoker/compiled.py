"""Functions as machine code, made by numba when they are declared: seconds, without a compiler.

The code is kept in NUMBA_CACHE_DIR if that is set, else in $XDG_CACHE_HOME/stoker/kernels
(~/.cache/stoker/kernels); where that cannot be written, each process compiles for itself.
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
    """Where numba keeps the machine code; None where nothing can be kept."""
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
    """numba looks at its setting when a function is declared; the script's own stay where they are."""
    before, _numba_config.CACHE_DIR = _numba_config.CACHE_DIR, FOLDER or ""
    try:
        yield
    finally:
        _numba_config.CACHE_DIR = before


def kernel(*signatures: str) -> Callable[[_Kernel], _Kernel]:
    """Compile now, or load what was compiled before. Without signatures: part of its callers."""

    def compiled(function: _Kernel) -> _Kernel:
        with _kept_in_folder():
            cache = FOLDER is not None and bool(signatures)
            # A float that is divided by zero is what IEEE says; a check of it would stop vector code.
            made: Any = numba.njit(
                list(signatures) or None, nogil=True, cache=cache, error_model="numpy"
            )(function)
        return cast(_Kernel, made)

    return compiled
