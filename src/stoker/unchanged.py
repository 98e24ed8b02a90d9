"""Loads the compiled look at what is held by modules and classes, which touches none of it.

Promise: `are_unchanged` says True only if all is what it was. It is None where unchanged.c was not built (no
compiler), or Python keeps no lock: then the caller compares by himself, which takes ten times as long behind a fork.
"""

import ctypes
import gc
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

_OF_PYTHON = (
    "PyDict_Next", "PyList_Size", "PyList_GetItem", "PyTuple_GetItem", "PyFunction_GetCode", "PyObject_Type", "Py_DecRef",
)  # fmt: skip


def load(library: Path) -> Callable[[Sequence[Any]], bool] | None:
    """Return a function of a list of spaces (trusted.py) that says whether all is what it was; None if there
    is no such library."""
    try:
        opened = ctypes.PyDLL(str(library))  # which keeps the interpreter lock
        function = opened.stoker_are_unchanged
        found = [getattr(ctypes.pythonapi, each) for each in _OF_PYTHON]
    except (OSError, AttributeError):
        return None
    if not getattr(sys, "_is_gil_enabled", lambda: True)():
        return None
    addresses = [ctypes.cast(each, ctypes.c_void_p).value for each in found]
    python = (ctypes.c_void_p * len(found))(*addresses)
    function.argtypes = (ctypes.c_void_p, ctypes.py_object)
    return lambda spaces: bool(function(python, spaces))


def dict_of(owner: Any) -> dict[str, Any]:
    """Return the dictionary of a module or class itself, of which `vars` shows a class's only in a wrapper."""
    held = vars(owner)
    return held if type(held) is dict else gc.get_referents(held)[0]


LIBRARY = Path(__file__).with_name("libunchanged.so")
are_unchanged = load(LIBRARY)
