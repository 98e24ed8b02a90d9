"""Reads in a function's code which names it looks up: globals, what it takes of them, and what it imports.

Pure: standard library only.
"""

import dis
import re
import types
from collections.abc import Iterator
from typing import NamedTuple

_GLOBAL = ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS")
_LOCAL = ("LOAD_FAST", "LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_DEREF")
_CONSTANT, _ATTRIBUTE = ("LOAD_CONST", "LOAD_SMALL_INT"), ("LOAD_ATTR", "LOAD_METHOD")
_NOTHING = {"CACHE", "EXTENDED_ARG", "NOP", "NOT_TAKEN"}

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


def codes_in(code: types.CodeType) -> Iterator[types.CodeType]:
    """Iterate a function's code and that of the functions inside it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from codes_in(constant)


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
