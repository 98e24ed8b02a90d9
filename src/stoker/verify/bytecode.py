"""Resolves the names that a function uses to the objects they stand for, without running it.

Promise: calls nothing of the script's, imports nothing; a name in a module that was not
imported yet is a `Named`. What cannot be told (a method of an unknown object) is NOTHING.
"""

import builtins
import dis
import inspect
import sys
import types
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple


class Named(str):
    """The dotted name of something in a module that was not imported."""


class Use(NamedTuple):
    """A use of a name. value: what it stands for, or NOTHING; attribute: the name, if it follows a
    dot; line: 1-based, 0 if not told; beside: all names on that line; called_without: whether it is
    called at once with nothing, or with None.
    """

    value: Any
    attribute: str
    line: int
    beside: frozenset[str]
    called_without: bool


NOTHING = object()
# Steps that move nothing we follow.
_SKIPPED = {
    "CACHE", "COPY_FREE_VARS", "EXTENDED_ARG", "NOP", "NOT_TAKEN", "PRECALL", "PUSH_NULL", "RESUME",
}  # fmt: skip
_ATTRIBUTES = ("LOAD_ATTR", "LOAD_METHOD")
_LOADS = (
    *_ATTRIBUTES, "LOAD_FAST", "LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF", "LOAD_CLASSDEREF",
    "LOAD_FROM_DICT_OR_",
)  # fmt: skip


def uses(code: types.CodeType, names: Mapping[str, Any], local: dict[str, Any]) -> Iterator[Use]:
    """Iterate every use of a name in one code object, in order; not in the functions inside it.

    names: the globals; local: what is known of other names, e.g. closures. The code's own imports
    are added to `local`.
    """
    steps = [step for step in dis.get_instructions(code) if step.opname not in _SKIPPED]
    beside = _names_by_line(steps)
    reader = _Reader(names, local)
    for i, step in enumerate(steps):
        reader.read(step, steps[i - 1])
        if reader.is_use:
            line = _line(step)
            yield Use(
                reader.top,
                step.argval if step.opname in _ATTRIBUTES else "",
                line,
                beside.get(line, frozenset()),
                _is_called_without(steps[i + 1 : i + 3]),
            )


class _Reader:
    """A tracker of the object on top of the interpreter's stack, as far as names tell."""

    def __init__(self, names: Mapping[str, Any], local: dict[str, Any]) -> None:
        self._names = names
        self._local = local
        self._imported: Any = NOTHING  # the module of the import statement under way
        self._is_from = False
        self._pending: Any = NOTHING  # to be bound by the next store
        self.top: Any = NOTHING
        self.is_use = False

    def read(self, step: dis.Instruction, before: dis.Instruction) -> None:
        operation, (first, name) = step.opname, _names(step.argval)
        self.is_use = False
        if operation in ("IMPORT_NAME", "IMPORT_FROM"):
            self._import(operation, name, before.argval)
        elif operation.startswith("STORE_"):
            if self._pending is not NOTHING:
                self._local[first] = self._pending
            self._pending = self.top = NOTHING
            if operation == "STORE_FAST_LOAD_FAST":
                self._load("LOAD_FAST", name)
        elif operation in ("SWAP", "POP_TOP"):  # between the parts of an import
            self.top = NOTHING
        else:
            self._pending = NOTHING
            self._load(operation, name)

    def _import(self, operation: str, name: str, fromlist: object) -> None:
        if operation == "IMPORT_NAME":
            self._is_from = fromlist is not None
            self._imported = _module(name if self._is_from else name.partition(".")[0])
            self._pending = self._imported
        else:
            self._pending = attribute_of(self._imported, name)
            if not self._is_from:  # `import a.b as c` walks from a to b
                self._imported = self._pending
        # The thing itself is used where its name is.
        self.top = NOTHING

    def _load(self, operation: str, name: str) -> None:
        self.is_use = operation.startswith(_LOADS)
        if not self.is_use:
            self.top = NOTHING
        elif operation in _ATTRIBUTES:
            self.top = attribute_of(self.top, name)
        else:
            self.top = self._local.get(name, NOTHING)
            if self.top is NOTHING and not operation.startswith("LOAD_FAST"):
                self.top = self._names.get(name, getattr(builtins, name, NOTHING))


def attribute_of(owner: Any, name: str) -> Any:
    """Return what `owner.name` is, for modules and classes; NOTHING for all else."""
    if type(owner) is Named:
        return Named(f"{owner}.{name}")
    if type(owner) is types.ModuleType:
        full = f"{owner.__name__}.{name}"
        return vars(owner).get(name, sys.modules.get(full, Named(full)))
    if issubclass(type(owner), type):
        found = inspect.getattr_static(owner, name, NOTHING)
        # A classmethod of C is made anew whenever it is asked for; asking runs no Python.
        return getattr(owner, name) if type(found) is types.ClassMethodDescriptorType else found
    return NOTHING


def contents(function: types.FunctionType) -> dict[str, object]:
    """Return what a function's closure holds, by name."""
    found = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            found[name] = cell.cell_contents
        except ValueError:  # not assigned yet
            continue
    return found


def _module(name: str) -> Any:
    return sys.modules.get(name) or Named(name)


def _names(argument: object) -> tuple[str, str]:
    """Return first and last name: an instruction may store and load two at once (Python 3.13)."""
    names = argument if isinstance(argument, tuple) and argument else (argument,)
    return str(names[0]), str(names[-1])


def _names_by_line(steps: list[dis.Instruction]) -> dict[int, frozenset[str]]:
    found: dict[int, set[str]] = {}
    for step in steps:
        if step.opname != "LOAD_CONST":
            found.setdefault(_line(step), set()).add(str(step.argval))
    return {line: frozenset(names) for line, names in found.items()}


def _is_called_without(following: list[dis.Instruction]) -> bool:
    num_arguments = 0
    if following and following[0].opname == "LOAD_CONST" and following[0].argval is None:
        following, num_arguments = following[1:], 1
    call = following[0] if following else None
    return call is not None and call.opname == "CALL" and call.arg == num_arguments


def _line(step: dis.Instruction) -> int:
    return (step.positions.lineno if step.positions else None) or 0
