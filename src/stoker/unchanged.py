"""Loads the compiled look at what is held by modules and classes, which touches none of it.

Promise: `are_unchanged` says True only if all is what it was. It is None where unchanged.c was not built (no
compiler), or Python keeps no lock: then the caller compares by himself, which takes ten times as long behind a fork.
"""

import ctypes
import gc
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

_OF_PYTHON = (
    "PyDict_Next",
    "PyList_Size",
    "PyList_GetItem",
    "PyFunction_GetCode",
    "PyObject_Type",
    "Py_DecRef",
)


class Held(NamedTuple):
    """What was held. names, values: of each dictionary its own, in its order, then the dictionary itself."""

    dicts: list[dict[str, Any]]
    names: list[Any]
    values: list[Any]
    functions: list[Any]
    codes: list[Any]
    objects: list[Any]
    kinds: list[type]


def load(library: Path) -> Callable[[Held], bool] | None:
    """Return a function that says whether all is what it was; None if there is no such library."""
    try:
        function = ctypes.PyDLL(
            str(library)
        ).stoker_are_unchanged  # which keeps the interpreter lock
        found = [
            ctypes.cast(getattr(ctypes.pythonapi, each), ctypes.c_void_p).value
            for each in _OF_PYTHON
        ]
    except (OSError, AttributeError):
        return None
    if not getattr(sys, "_is_gil_enabled", lambda: True)():
        return None
    python = (ctypes.c_void_p * len(found))(*found)
    function.argtypes = (ctypes.c_void_p, *[ctypes.py_object] * len(Held._fields))
    return lambda held: bool(function(python, *held))


def dict_of(owner: Any) -> dict[str, Any]:
    """Return the dictionary of a module or class itself, of which `vars` shows a class's only in a wrapper."""
    held = vars(owner)
    return held if type(held) is dict else gc.get_referents(held)[0]


LIBRARY = Path(__file__).with_name("libunchanged.so")
are_unchanged = load(LIBRARY)
