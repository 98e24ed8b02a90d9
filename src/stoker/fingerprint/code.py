"""Hashes code: functions with all that they can reach by name, classes, modules.

Promise: a global that a function reads changes its fingerprint, in whichever module it lies.
Trusted modules are known by name alone.
"""

import dis
import logging
import sys
import threading
import types
from collections.abc import Iterator
from typing import Any

from stoker.fingerprint.walker import Unwatchable, Walker
from stoker.trusted import is_trusted

# Modules that keep state where no Python object shows it; empty: whatever is used of them.
_HIDDEN: dict[str, set[str]] = {
    "ctypes": set(),
    "cffi": set(),
    "decimal": {"getcontext", "setcontext", "localcontext"},
    "cv2": {"randu", "randn", "randShuffle", "setRNGSeed", "theRNG", "kmeans"},
    "os": {"read", "write", "lseek", "readv", "writev", "umask", "chdir"},
}
_BORING = {
    "__dict__", "__weakref__", "__doc__", "__annotations__", "__module__", "__orig_bases__",
    "__parameters__", "_abc_impl", "__abstractmethods__",
    "__slotnames__",  # copyreg keeps it there once an instance was pickled
}  # fmt: skip


def function(walker: Walker, value: types.FunctionType, path: str) -> None:
    walker.put(b"f", f"{value.__module__}.{value.__qualname__}".encode())
    if is_trusted(value.__module__):
        return
    for code in _codes_in(value.__code__):
        walker.put(b"c", code.co_code + repr(code.co_names).encode())
        walker.walk_all(_constants_of(code), path)
    for name, held in held_by(value):
        walker.walk(held, f"{path}'s {name}")
    names = {name for code in _codes_in(value.__code__) for name in code.co_names}
    if names & walker.banned:
        raise Unwatchable(f"{path} uses {min(names & walker.banned)}")
    for name in sorted(names):
        if name in value.__globals__:
            _walk_global(walker, value.__globals__[name], names, f"{value.__module__}.{name}")
        elif name in sys.modules:  # imported inside the function
            walker.lazy.add(name)
            _walk_global(walker, sys.modules[name], names, name)
    walker.walk_attributes(value, type(value), path)


def _walk_global(walker: Walker, value: object, names: set[str], path: str) -> None:
    if not isinstance(value, types.ModuleType):
        walker.walk(value, path)
        return
    hidden = _HIDDEN.get(value.__name__)
    if hidden is not None and (not hidden or hidden & names):
        raise Unwatchable(f"{path} keeps state that nobody can see")
    if not is_trusted(value.__name__) and (id(value), frozenset(names)) not in walker.walked:
        walker.walked.add((id(value), frozenset(names)))
        for name in sorted(names & vars(value).keys()):
            _walk_global(walker, vars(value)[name], names, f"{path}.{name}")


def method(walker: Walker, value: types.MethodType, path: str) -> None:
    walker.walk(value.__func__, path)
    walker.walk(value.__self__, f"{path}.__self__")


def by_name(walker: Walker, value: Any, path: str) -> None:
    walker.put(b"c", f"{getattr(value, '__qualname__', value)}".encode())
    owner = getattr(value, "__self__", None)
    if owner is not None and not isinstance(owner, types.ModuleType) and not _is_pybind(owner):
        walker.walk(owner, f"{path}.__self__")


def _is_pybind(owner: object) -> bool:
    """Whether a C function belongs to no object, but to what pybind11 knows of it: a capsule, since
    pybind11 3 a type of its own. Such functions are known by name, as those of other C modules."""
    return type(owner).__name__ == "PyCapsule" or type(owner).__name__.startswith("pybind11_detail")


def ufunc(walker: Walker, value: Any, path: str) -> None:
    """Hash NumPy's own by name; one that was made of a Python function shows nothing of that."""
    name = value.__name__
    if getattr(sys.modules["numpy"], name, None) is not value:
        raise Unwatchable(f"{path}: a ufunc that is not NumPy's")
    walker.put(b"c", name.encode())


def logger(walker: Walker, value: logging.Logger, path: str) -> None:
    """Hash what a logger lets through. What it writes is a trace outside (outside.py)."""
    told = value.name, value.getEffectiveLevel(), value.disabled, logging.root.manager.disable
    walker.put(b"l", repr(told).encode())
    walker.walk_all(value.filters, f"{path}.filters")


def wrapper(walker: Walker, value: Any, path: str) -> None:
    for name in ("__func__", "fget", "fset", "func", "args", "keywords"):
        walker.walk(getattr(value, name, None), f"{path}.{name}")


def kind(walker: Walker, value: type, path: str) -> None:
    walker.put(b"k", f"{value.__module__}.{value.__qualname__}".encode())
    for owner in value.__mro__:
        if is_trusted(owner.__module__):
            continue
        for name in sorted(vars(owner).keys() - _BORING):  # unpickled classes order them anew
            walker.put(b".", name.encode())
            walker.walk(vars(owner)[name], f"{owner.__qualname__}.{name}")


def module(walker: Walker, value: types.ModuleType, path: str) -> None:
    """Hash a module that is itself a value: nothing tells which of its names are used."""
    walker.put(b"m", value.__name__.encode())
    if not is_trusted(value.__name__):
        for name, attribute in vars(value).items():
            if not name.startswith("__"):
                walker.walk(attribute, f"{path}.{name}")


def cached(walker: Walker, value: Any, path: str) -> None:
    """Hash a functools.lru_cache: a miss changes what it holds, a hit does not."""
    info = value.cache_info()
    walker.put(b"l", f"{info.misses} {info.currsize}".encode())
    walker.walk(value.__wrapped__, path)


def lock(walker: Walker, value: Any, path: str) -> None:
    walker.put(b"k", b"lock")


def thread_local(walker: Walker, value: threading.local, path: str) -> None:
    """Hash what this thread sees."""
    walker.walk(vars(value), path)


def held_by(function: types.FunctionType) -> Iterator[tuple[str, object]]:
    """Iterate what a function itself holds, each by its name: defaults and closure variables."""
    code, defaults = function.__code__, function.__defaults__ or ()
    num_before = code.co_argcount - len(defaults)
    yield from zip(code.co_varnames[num_before : code.co_argcount], defaults, strict=True)
    yield from (function.__kwdefaults__ or {}).items()
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        yield name, _content(cell)


def _content(cell: types.CellType) -> object:
    try:
        return cell.cell_contents
    except ValueError:  # not assigned yet
        return None


def _constants_of(code: types.CodeType) -> Iterator[object]:
    """Iterate a code's constants, other code left out. Of a set that it only looks things up in, as
    `in {".jpg", ".png"}`, nobody sees the order, which is another in each process."""
    sets = [each for each in code.co_consts if isinstance(each, frozenset)]
    unseen = set(map(id, sets)) - _iterated(code) if sets else set()
    for each in code.co_consts:
        if id(each) in unseen:
            yield "set", sorted(each, key=repr)
        elif not isinstance(each, types.CodeType):
            yield each


def _iterated(code: types.CodeType) -> set[int]:
    """Return the ids of the sets that a code does anything with but look things up in."""
    steps = [each for each in dis.get_instructions(code) if each.opname != "NOP"]
    return {
        id(step.argval)
        for step, following in zip(steps, [*steps[1:], steps[-1]], strict=True)
        if isinstance(step.argval, frozenset) and following.opname != "CONTAINS_OP"
    }


def _codes_in(code: types.CodeType) -> Iterator[types.CodeType]:
    """Iterate a function's code and that of the functions inside it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes_in(constant)
