"""Reads in a function's instructions which names it looks up: globals, what it takes of them, and what it
imports; and what it does with local ones.

Pure: standard library only.
"""

import dis
import re
import types
from collections.abc import Iterable, Iterator
from typing import NamedTuple

_GLOBAL = ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS")
_LOCAL = ("LOAD_FAST", "LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_DEREF")
_CONSTANT, _ATTRIBUTE = ("LOAD_CONST", "LOAD_SMALL_INT"), ("LOAD_ATTR", "LOAD_METHOD")
_NOTHING = {"CACHE", "EXTENDED_ARG", "NOP", "NOT_TAKEN"}
_OF_LOCALS = ("FAST", "DEREF", "CLOSURE")  # in the names of instructions that use a local name
_ONLY_BIND = {"COPY_FREE_VARS", "MAKE_CELL", "STORE_DEREF", "STORE_FAST", "STORE_FAST_STORE_FAST"}
_ONLY_HAND_ON = {"COPY_FREE_VARS", "LOAD_CLOSURE", "MAKE_CELL"}  # to functions inside
_HAND_ON_CELLS = {"LOAD_FAST", "LOAD_FAST_BORROW"}
_OF_ATTRIBUTES = {"DELETE_ATTR", "LOAD_ATTR", "LOAD_METHOD", "STORE_ATTR"}
_LEFT_OUT = {"EXTENDED_ARG", "NOP", "PRECALL", "PUSH_NULL", "RESUME"}

Chain = tuple[str, ...]  # a name, and the attributes that are taken, each of the one before


class Import(NamedTuple):
    """What is used of a module: an attribute of it, and of that; none: itself, None: that it is imported."""

    level: int
    module: str
    used: Chain | None


class Names(NamedTuple):
    """What a function's code, and that of the functions inside it, looks up."""

    code: types.CodeType  # of which this is known, by its id
    of_globals: list[Chain]
    imports: list[Import]


_known: dict[int, Names] = {}
_MAX_KNOWN = 10_000


def names_of(code: types.CodeType) -> Names:
    known = _known.get(id(code))
    if known is None:
        if len(_known) > _MAX_KNOWN:
            _known.clear()
        reader = _Reader()
        for each in codes_in(code):
            reader.read(each)
        known = _known[id(code)] = Names(code, sorted(reader.of_globals), list(reader.imports()))
    return known


def codes_in(code: types.CodeType, seeing: str = "") -> Iterator[types.CodeType]:
    """Iterate a function's code and that of the functions inside it. seeing: only those that see this local
    name of it."""
    yield code
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType) and (not seeing or seeing in inner.co_freevars):
            yield from codes_in(inner, seeing)


def names_in(code: types.CodeType) -> Iterator[str]:
    """Iterate the names that a code and those inside it look up: globals, attributes, modules."""
    return (name for each in codes_in(code) for name in each.co_names)


def reads_of(code: types.CodeType, names: Iterable[str]) -> set[str]:
    """Return those of the local `names` that code may read or delete, functions inside it included:
    maybe too many, for a name that it always binds first is among them."""
    found: set[str] = set()
    for step in dis.get_instructions(code):
        if step.opname not in _ONLY_BIND:
            found.update(_locals_in(step))
    return found.intersection(names)


def attributes_of(function: types.FunctionType, name: str) -> set[str] | None:
    """Return the attributes of the local `name` that a function uses, functions inside it included;
    None if it does anything else with it, or calls super(). `len(name)` is `__len__`."""
    found: set[str] = set()
    for code in codes_in(function.__code__, name):
        used = _attributes_in(code, name, "len" not in function.__globals__)
        if used is None or "__class__" in code.co_freevars:
            return None
        found |= used
    return found


def _attributes_in(code: types.CodeType, name: str, has_len: bool) -> set[str] | None:
    found: set[str] = set()
    steps = [each for each in dis.get_instructions(code) if each.opname not in _LEFT_OUT]
    for before, step, after in zip(
        [steps[0], *steps], steps, [*steps[1:], steps[-1]], strict=False
    ):
        used = _locals_in(step)
        is_handed_on = step.opname in _ONLY_HAND_ON or (
            step.opname in _HAND_ON_CELLS and name in code.co_cellvars  # as from Python 3.13 on
        )
        if name not in used or is_handed_on:
            continue
        if "LOAD_" not in step.opname or used[-1] != name or name in used[:-1]:
            return None
        if after.opname in _OF_ATTRIBUTES:
            found.add(after.argval)
        elif has_len and before.argval == "len" and (after.opname, after.arg) == ("CALL", 1):
            found.add("__len__")
        else:
            return None
    return found


def _locals_in(step: dis.Instruction) -> tuple[str, ...]:
    """Return the local names that an instruction uses: some use two."""
    if not any(part in step.opname for part in _OF_LOCALS):
        return ()
    return step.argval if type(step.argval) is tuple else (step.argval,)


class _Reader:
    def __init__(self) -> None:
        self.of_globals: set[Chain] = set()
        self._of_locals: set[Chain] = set()
        self._named: set[tuple[int, str]] = set()  # levels and modules of import statements
        self._bound: set[tuple[str, Import]] = set()  # local names that they give to what

    def imports(self) -> Iterator[Import]:
        found = {Import(level, module, None) for level, module in self._named}
        for name, (level, module, used) in self._bound:
            for first, *rest in self._of_locals | self.of_globals:
                if first == name:
                    found.add(Import(level, module, (*(used or ()), *rest)))
        yield from sorted(found, key=repr)

    def read(self, code: types.CodeType) -> None:
        constants: tuple[object, object] = 0, None  # the last two: an import's level and names
        imported: Import | None = None
        chain: list[str] = []
        is_global = False
        cells = {*code.co_cellvars, *code.co_freevars}  # loaded whole for a closure, since 3.13
        for step, name in (*_steps(code), ("END", "")):
            if step in _ATTRIBUTE and chain:
                chain.append(name)
                continue
            if chain:
                (self.of_globals if is_global else self._of_locals).add(tuple(chain))
            is_global = step in _GLOBAL
            is_local = step.startswith(_LOCAL) and not (
                step.startswith("LOAD_FAST") and name in cells
            )
            chain = [name] if is_global or is_local else []
            if step in _CONSTANT:
                constants = constants[1], name
            elif step == "IMPORT_NAME":
                level, names = int(str(constants[0])), constants[1]
                self._named.add((level, name))
                imported = Import(level, name if names else name.partition(".")[0], None)
                module = name
            elif step == "IMPORT_FROM":  # or `import a.b as c`
                imported = Import(level, module, (name,) if names else None)
            elif step.startswith("STORE_") and imported is not None:
                self._bound.add((name, imported))
                imported = None


def _steps(code: types.CodeType) -> Iterator[tuple[str, str]]:
    """Iterate instructions, those that are two in one as two."""
    for step in dis.get_instructions(code):
        if step.opname.count("_FAST") > 1 and isinstance(step.argval, tuple):
            for kind, name in zip(
                re.findall("(LOAD|STORE)_FAST", step.opname), step.argval, strict=True
            ):
                yield f"{kind}_FAST", name
        elif step.opname not in _NOTHING:
            yield step.opname, step.argval
