"""Tells whether the script has registered functions with `os.register_at_fork`.

Under torch a loader without workers never forks, so such functions would run only due to stoker:
they may print, count, or wait for a thread that a forked process does not have.

Promise: raises nothing. Functions of the standard library and of installed packages do not count:
`random`, `logging`, NumPy and others register some, which are made for forks at any time.
Imported when a process is armed, when the search below takes 0.2 ms, before the script could
hide anything from it by `gc.freeze()`; therefore nothing is imported here.
"""

import gc
import os
import sys

TYPE_CHECKING = False  # as typing's, which costs 3 ms to import
if TYPE_CHECKING:
    from typing import Any


def _mark() -> None:
    """Do nothing; registered beside the script's functions, to find the interpreter's lists by."""


os.register_at_fork(before=_mark, after_in_parent=_mark, after_in_child=_mark)
# CPython keeps what is registered in three plain lists, which no name leads to.
# Source: Modules/posixmodule.c `register_at_forker`, 3.11 to 3.14
_lists: "list[list[Any]]" = [known for known in gc.get_referrers(_mark) if type(known) is list]


def has_functions_of_the_scripts() -> bool:
    """Whether the script has any; True if that is unknown, as Python keeps them elsewhere."""
    return len(_lists) != 3 or any(_is_scripts(function) for known in _lists for function in known)


def _is_scripts(function: "Any") -> bool:
    from functools import partial

    from stoker.blame import OURS, is_installed

    try:
        while isinstance(function, partial):
            function = function.func
        if str(function.__module__).partition(".")[0] in OURS:
            return False
        code = getattr(function, "__code__", None) or type(function).__call__.__code__
        file = code.co_filename
        if file.endswith(".pyx"):  # Cython's, as h5py's, which lies where its package was built
            file = sys.modules[function.__module__].__file__
        return not is_installed(file)
    except Exception:  # compiled, or an object that raises what it likes
        return _is_of_held_lock(function)


def _is_of_held_lock(function: "Any") -> bool:
    """Whether it is a method of a held lock: if it is the script's, to acquire it would hang."""
    from _thread import LockType

    lock = getattr(function, "__self__", None)
    return type(lock) is LockType and lock.locked()
