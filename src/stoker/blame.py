"""Tells errors of the script, which are re-raised, from stoker's own, which fall back to torch.

Promise: an error is the script's if code of its own, or of a package that it uses, was running. It
is ours if only stoker, torch and the standard library were.
"""

import functools
import sysconfig
import traceback
from types import FrameType
from typing import Any

from stoker import speak

OURS = ("stoker", "torch", "torchdata")  # packages
_STDLIB = sysconfig.get_path("stdlib") + "/"
_SITES = ("/site-packages/", "/dist-packages/")
# Functions of import finders and loaders. Source: importlib.abc
_OF_FINDERS = ("find_spec", "create_module", "exec_module", "get_code", "source_to_code")
_LIMIT = 160  # characters of an error's text


def is_scripts(error: BaseException) -> bool:
    """Whether the script's code raised an error that came out of our code."""
    if speak.raised_by_handler(error):  # also while we import something
        return True
    trace = error.__traceback__
    while trace is not None:
        frame = trace.tb_frame
        if _is_import(frame):  # whatever a finder of the script's does to a module of ours
            return False
        if not _is_ours(frame):
            return True
        trace = trace.tb_next
    return False


def _is_import(frame: FrameType) -> bool:
    """Whether a frame belongs to the import system; tracebacks leave out most of its frames."""
    code = frame.f_code
    return code.co_filename.startswith("<frozen importlib") or code.co_name in _OF_FINDERS


def _is_ours(frame: FrameType) -> bool:
    name: Any = frame.f_globals.get("__name__")
    if isinstance(name, str) and name.partition(".")[0] in OURS:
        return True
    file = frame.f_code.co_filename
    if file.startswith("<frozen ") or str(name).startswith("namedtuple_"):
        return True
    return file.startswith(_STDLIB) and not any(site in file for site in _SITES)


@functools.cache
def is_installed(file: str) -> bool:
    """Whether a file is of the standard library or an installed package, so not the script's."""
    return file.startswith((_STDLIB, "<frozen ")) or any(site in file for site in _SITES)


def in_words(error: BaseException) -> str:
    """Describe an error in one line: what failed, and where in stoker's code."""
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
