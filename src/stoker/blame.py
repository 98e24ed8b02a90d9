"""Puts stoker's own errors into words, and tells installed code from the script's.

Whose an error is that comes out of an iterator of ours: see `is_theirs` in loaders/multiprocess.py.
"""

import functools
import sysconfig
import traceback

OURS = ("stoker", "torch", "torchdata")  # packages
_STDLIB = sysconfig.get_path("stdlib") + "/"
_SITES = ("/site-packages/", "/dist-packages/")
DIED_EARLY = "the process that starts its workers died before the first batch"
_LIMIT = 160  # characters of an error's text


class LeftToTorch(Exception):
    """The reason why a loader is torch's after all, found once its workers started. No script sees it."""


@functools.cache
def is_installed(file: str) -> bool:
    """Whether a file is of the standard library or an installed package, so not the script's."""
    return file.startswith((_STDLIB, "<frozen ")) or any(site in file for site in _SITES)


def in_words(error: BaseException) -> str:
    """Describe an error in one line: what failed, and where in stoker's code; or the reason that it is."""
    if isinstance(error, LeftToTorch):
        return str(error)
    try:
        text = " ".join(str(error).split())[:_LIMIT]
    except Exception:
        text = "it cannot be shown"
    ours = [
        f"{frame.f_globals['__name__']}:{line}"
        for frame, line in traceback.walk_tb(error.__traceback__)
        if str(frame.f_globals.get("__name__")).startswith("stoker.")
    ]
    return f"stoker failed: {type(error).__name__}: {text} ({ours[-1] if ours else 'torch'})"
