"""Hashes code: functions with all that they can reach by name, classes, modules.

Promise: a global that a function reads changes its fingerprint, in whichever module it lies.
What is a trusted library's own is known by name alone.
"""

import builtins
import dis
import importlib.util
import logging
import sys
import threading
import types
from collections.abc import Iterator
from typing import Any

from stoker.blame import is_installed
from stoker.fingerprint.names import Chain, codes_in, names_in, names_of
from stoker.fingerprint.walker import BY_REPR, Unwatchable, Walker
from stoker.trusted import is_librarys, is_ours, is_trusted, is_written_by_library, registered_in

# All of a code object but where it stands: names of files, lines, and the depth of its stack.
_FIELDS = (
    "co_name", "co_qualname", "co_code", "co_exceptiontable", "co_flags", "co_argcount",
    "co_posonlyargcount", "co_kwonlyargcount", "co_names", "co_varnames", "co_freevars", "co_cellvars",
)  # fmt: skip
# Functions with a state where no Python object shows it, by module; "": whatever is used of it.
_HIDDEN: dict[str, set[str]] = {
    "ctypes": {""}, "cffi": {""},
    "decimal": {"getcontext", "setcontext", "localcontext"},
    "cv2": {"randu", "randn", "randShuffle", "setRNGSeed", "theRNG", "kmeans"},
    "os": {"read", "write", "lseek", "readv", "writev", "umask", "chdir"},
    "posix": {"read", "write", "lseek", "readv", "writev", "umask", "chdir"},
}  # fmt: skip
# Functions and attributes by which the script's code finds what no name of its own tells: other code by a
# name that it computes, and what code says of itself.
_FINDING: dict[str, set[str]] = {
    "builtins": {"globals", "eval", "exec", "compile", "__import__"},
    "sys": {"modules"}, "typing": {"get_type_hints"}, "codecs": {"register"}, "torch": {"ops"},
    "importlib": {""}, "inspect": {"getdoc", "getmembers", "getmodule", "getsource", "get_annotations", "signature"}, "gc": {""}, "runpy": {""}, "pkgutil": {""},
}  # fmt: skip
_FINDING_ATTRIBUTES = {
    "__globals__", "__builtins__", "f_globals", "f_back", "__doc__", "__annotations__", "__code__", "__subclasses__",
}  # fmt: skip
_BORING = {
    "__dict__", "__weakref__", "__doc__", "__annotations__", "__module__", "__orig_bases__",
    "__parameters__", "_abc_impl", "__abstractmethods__",
    "__firstlineno__", "__static_attributes__", "__annotate_func__", "__annotations_cache__", "__classdictcell__",  # 3.13, 3.14
    "__slotnames__",  # copyreg keeps it there once an instance was pickled
}  # fmt: skip


def function(walker: Walker, value: types.FunctionType, path: str) -> None:
    walker.put(b"f", f"{value.__module__}.{value.__qualname__}".encode())
    _refuse(_HIDDEN, value.__module__, value.__name__, path)
    if is_librarys(value):
        return
    if is_ours(value.__code__) and "__wrapped__" in vars(value):
        walker.walk(vars(value)["__wrapped__"], path)  # what a hook of ours stands for
        return
    for code in codes_in(value.__code__):
        walker.put(b"c", repr([getattr(code, each) for each in _FIELDS]).encode())
        walker.walk_all(_constants_of(code), path)
    for name, held in held_by(value):
        walker.put(b".", name.encode())
        walker.walk(held, f"{path}'s {name}")
    walker.walk_attributes(value, type(value), path)
    if not is_written_by_library(value):  # else what it was made of tells all
        _walk_names(walker, value, path)


def _walk_names(walker: Walker, value: types.FunctionType, path: str) -> None:
    """Hash what a function looks up by name. Raises Unwatchable where that cannot be known."""
    is_scripts = not is_installed(value.__code__.co_filename)
    names = set(names_in(value.__code__))
    refused = names & (walker.banned | _FINDING_ATTRIBUTES if is_scripts else walker.banned)
    if refused:
        raise Unwatchable(f"{path} uses {min(refused)}")
    if names & {"sample", "shuffle"}:
        walker.may_draw = path
    constants = {
        each for code in codes_in(value.__code__) for each in code.co_consts if type(each) is str
    }
    if constants & {"now", "today"} and names & {"datetime64", "astype", "array", "asarray"}:
        raise Unwatchable(
            f"{path}: NumPy reads the clock where it is told so, and nobody hears of it"
        )
    held, looked_up = value.__globals__, names_of(value.__code__)
    for first, *rest in looked_up.of_globals:
        if first in held:
            walker.meets_polars |= held[first] is sys.modules.get("polars", walker)
            _follow(walker, held[first], rest, f"{value.__module__}.{first}", is_scripts)
        else:
            _follow(walker, builtins, [first, *rest], "builtins", is_scripts)
    for level, name, used in looked_up.imports:
        _walk_import(walker, _absolute(level, name, held), used, is_scripts)


def _absolute(level: int, name: str, held: dict[str, Any]) -> str:
    package = held.get("__package__") or str(held.get("__name__")).rpartition(".")[0]
    return importlib.util.resolve_name("." * level + name, package) if level else name


def _walk_import(walker: Walker, name: str, used: Chain | None, is_scripts: bool) -> None:
    """Hash what an import inside a function gives; what was not imported yet will be another state."""
    found = sys.modules.get(name)
    walker.meets_polars |= name.partition(".")[0] == "polars"
    walker.put(b"i", name.encode() if found is None else b"")
    if found is not None:
        walker.lazy.add(name)
        if used is not None:
            _follow(walker, found, list(used), name, is_scripts)


def _follow(walker: Walker, value: Any, used: list[str], path: str, is_scripts: bool) -> None:
    """Hash what is used of a global: if it is a module, an attribute of it, else the whole of it."""
    for name in used:
        if not isinstance(value, types.ModuleType):
            break
        _refuse(_HIDDEN, value.__name__, name, path)
        if is_scripts:
            _refuse(_FINDING, value.__name__, name, path)
        held, is_known, path = vars(value), is_trusted(value.__name__), f"{path}.{name}"
        if name not in held and (is_known or "__getattr__" not in held):
            if not is_known and hasattr(types.ModuleType, name):
                break  # as __dict__: then who knows which of its names
            walker.put(b".", path.encode())  # a submodule that was not imported yet
            return
        value = _behind_hook(held.get(name, held.get("__getattr__")))
        if is_known and not isinstance(value, types.ModuleType) and not _may_be_scripts(value):
            walker.put(b".", path.encode())
            return
    if is_scripts and isinstance(value, types.FunctionType):  # as one that was imported by its name
        _refuse(_FINDING, value.__module__, value.__name__, path)
    if value is sys.modules:
        raise Unwatchable(f"{path} finds modules by names that nobody knows")
    walker.walk(value, path)


def _behind_hook(value: Any) -> Any:
    """Return what a hook of ours stands for, where that is compiled code: a process may look before that
    is hooked, too."""
    if isinstance(value, types.FunctionType) and is_ours(value.__code__):
        meant = vars(value).get("__wrapped__", value)
        return value if isinstance(meant, types.FunctionType) else meant
    return value


def _may_be_scripts(value: object) -> bool:
    """Whether something in a trusted module could be the script's: code, text and numbers, and what is
    of a class of its own. All else is the library's, and known by name."""
    kind = type(value)
    is_told = kind in BY_REPR or kind in (str, bytes, list, tuple, types.FunctionType)
    return is_told or issubclass(kind, type) or not is_trusted(kind.__module__)


def _refuse(refused: dict[str, set[str]], module: object, name: str, path: str) -> None:
    found = refused.get(str(module)) or refused.get(str(module).partition(".")[0], set())
    if name in found or "" in found:
        raise Unwatchable(f"{path}: {module}.{name} keeps or finds what nobody can see")


def method(walker: Walker, value: types.MethodType, path: str) -> None:
    walker.walk(value.__func__, path)
    walker.walk(value.__self__, f"{path}.__self__")


def by_name(walker: Walker, value: Any, path: str) -> None:
    module = getattr(value, "__module__", None)
    walker.put(b"c", f"{module}.{getattr(value, '__qualname__', value)}".encode())
    _refuse(_HIDDEN, module, value.__name__, path)
    _refuse(_FINDING, module, value.__name__, path)
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
    for name in ("__func__", "fget", "fset", "fdel", "func", "args", "keywords"):
        walker.walk(getattr(value, name, None), f"{path}.{name}")
    if type(value) not in (classmethod, staticmethod):  # theirs are what update_wrapper copied
        walker.walk_subclass(value, path)


def kind(walker: Walker, value: type, path: str) -> None:
    walker.put(b"k", f"{value.__module__}.{value.__qualname__}".encode())
    if is_librarys(value):
        return
    walker.walk_all((type(value), *value.__mro__[1:]), f"{path}'s bases")
    for name in sorted(vars(value).keys() - _BORING):  # unpickled classes order them anew
        walker.put(b".", name.encode())
        walker.walk(vars(value)[name], f"{value.__qualname__}.{name}")
    told = sorted(f"{each.__module__}.{each.__qualname__}" for each in registered_in(value))
    walker.put(b"k", repr(told).encode())


def module(walker: Walker, value: types.ModuleType, path: str) -> None:
    """Hash a module that is itself a value: nothing tells which of its names are used."""
    walker.put(b"m", value.__name__.encode())
    if not is_trusted(value.__name__):
        for name, attribute in vars(value).items():
            if not name.startswith("__") or name == "__getattr__":
                walker.put(b".", name.encode())
                walker.walk(attribute, f"{path}.{name}")


def cached(walker: Walker, value: Any, path: str) -> None:
    """Hash a functools.lru_cache that keeps nothing, or is a library's; what others hold nobody sees."""
    made_of = value.__wrapped__
    if isinstance(made_of, types.FunctionType) and is_librarys(made_of, known_as=value):
        walker.put(b"f", f"{value.__module__}.{value.__qualname__}".encode())
        return
    if value.cache_parameters()["maxsize"] != 0:
        raise Unwatchable(f"{path}: nobody can see what a functools.lru_cache holds")
    walker.walk(made_of, path)


def lock(walker: Walker, value: Any, path: str) -> None:
    walker.put(b"k", b"lock")


def thread_local(walker: Walker, value: threading.local, path: str) -> None:
    """Hash what this thread sees."""
    walker.walk(vars(value), path)
    walker.walk(type(value), f"type({path})")


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
