"""Makes plain objects of large containers immortal in a template, so that W workers share them.

Whoever reads a Python object writes its reference count, and behind a fork each page that is written to
is copied: W workers end up with W copies of a list that they only read (pytorch 13246). CPython 3.12 and
later do not count references to immortal objects (PEP 683).

Promise: only exact str, bytes, int, float and complex, and tuples of these, in lists, tuples, dicts and
sets of more than MIN_NUM; only in a template, which ends with its loader; nothing where a trial on one object fails.
"""

import contextlib
import ctypes
import itertools
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

MIN_NUM = 100_000
MAX_SMALL, MAX_SEEN = 1000, 10_000  # of a container that is looked into; objects that are looked at
_CONTAINERS = (list, tuple, dict)
_PLAIN = (str, bytes, int, float, complex, type(None), bool)  # the last two are immortal anyway
# Up to 3.13 references are not counted where all bits of the count are set; from 3.14 on from 3 << 30 on, and on
# the interpreter's stack by a flag above it. Source: CPython, Include/refcount.h and object.h.
_IMMORTAL = (1 << 48) + (3 << 30) if sys.version_info >= (3, 14) else (1 << 32) - 1
_OF_PYTHON = ("PyList_Size", "PyList_GetItem", "PyTuple_GetItem", "PyTuple_Size", "PyDict_Next")
_LIBRARY = Path(__file__).parents[1] / "libunchanged.so"

Make = Callable[[Any], int]


def share(value: object) -> int:
    """Make what large containers in reach of a value hold immortal; returns how many objects."""
    make = _make if _make is not None and not why_not() else None
    return 0 if make is None else sum(make(_listed(each)) for each in _large_in(value))


def _listed(container: Any) -> Any:
    """Return a container that the library can go through: of a set a list."""
    return list(container) if type(container) in (set, frozenset) else container


def nbytes_in(value: object) -> int:
    """Return about how many bytes the plain objects of large containers take, as far as the first thousand tell."""
    return sum(len(each) * _mean_nbytes(each) for each in _large_in(value))


def _mean_nbytes(container: Any) -> int:
    entries = container.items() if type(container) is dict else zip(container, strict=True)
    some = list(itertools.islice(entries, MAX_SMALL))
    return sum(map(_plain_nbytes, itertools.chain(*some))) // len(some)


def _plain_nbytes(value: object) -> int:
    if type(value) is tuple:
        return sum(map(_plain_nbytes, value)) + sys.getsizeof(value)
    return sys.getsizeof(value) if type(value) in _PLAIN else 0


def why_not() -> str:
    """Return why objects cannot be made immortal here, in words; empty: they can."""
    if not (3, 12) <= sys.version_info[:2] <= (3, 14) or sys.implementation.name != "cpython":
        return "that takes CPython 3.12, 3.13 or 3.14"
    if not getattr(sys, "_is_gil_enabled", lambda: True)():
        return "this Python has no interpreter lock"
    if _make is None:
        return "stoker was installed without a compiler"
    return "" if _works(_make) else "a trial on one object failed"


def _load(library: Path) -> Make | None:
    """Return a function that makes what a container holds immortal; None if there is no such library."""
    try:
        function = ctypes.PyDLL(str(library)).stoker_make_immortal  # keeps the interpreter lock
        found = [getattr(ctypes.pythonapi, each) for each in _OF_PYTHON]
    except (OSError, AttributeError):
        return None
    addresses = [ctypes.cast(each, ctypes.c_void_p).value for each in found]
    python = (ctypes.c_void_p * len(found))(*addresses)
    kinds = (ctypes.c_void_p * 11)(*map(id, _CONTAINERS + _PLAIN), _IMMORTAL)
    function.argtypes = ctypes.c_void_p, ctypes.c_void_p, ctypes.py_object
    function.restype = ctypes.c_ssize_t
    return lambda container: int(function(python, kinds, container))


def _works(make: Make) -> bool:
    """Whether an object that was made immortal is so: whatever is done with it, nothing writes its count."""
    tried = [float(len(_LIBRARY.name)) + 0.5]
    if make([float(len(_LIBRARY.name)) + 0.25, object()]) != 1 or make(tried) != 1:
        return False
    count = ctypes.c_uint32.from_address(id(tried[0]))
    before = count.value
    uses = (sys.getrefcount, str, lambda each: each, lambda each: [each] * 100)
    for use in uses * 10:
        use(tried[0])
        if count.value != before:
            return False
    return bool(getattr(sys, "_is_immortal", lambda _: True)(tried[0]))


def _large_in(value: object) -> Iterator[Any]:
    """Iterate the large containers in the attributes of an object, of what these hold, and so on."""
    seen: set[int] = set()
    left: list[Any] = [value]
    while left and len(seen) < MAX_SEEN:
        each = left.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        kind = type(each)
        if kind in (*_CONTAINERS, set, frozenset):
            if len(each) > MIN_NUM:
                yield each
            elif len(each) <= MAX_SMALL:
                left += each.values() if kind is dict else each
        elif not isinstance(each, (type, types.ModuleType, types.FunctionType)):
            with contextlib.suppress(
                AttributeError
            ):  # of the object itself: no code of the script's
                left += object.__getattribute__(each, "__dict__").values()


_make = _load(_LIBRARY)
