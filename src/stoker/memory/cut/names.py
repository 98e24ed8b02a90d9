"""Tells what code does with its local names, by its instructions.

Pure: standard library only.
"""

import ast
import dis
import types
from collections.abc import Iterable, Iterator

_OF_LOCALS = ("FAST", "DEREF", "CLOSURE")  # in the names of instructions that use a local name
_ONLY_BIND = {"COPY_FREE_VARS", "MAKE_CELL", "STORE_DEREF", "STORE_FAST", "STORE_FAST_STORE_FAST"}
_ONLY_HAND_ON = {"COPY_FREE_VARS", "LOAD_CLOSURE", "MAKE_CELL"}  # to functions inside
_OF_ATTRIBUTES = {"DELETE_ATTR", "LOAD_ATTR", "LOAD_METHOD", "STORE_ATTR"}
_LEFT_OUT = {"EXTENDED_ARG", "NOP", "PRECALL", "PUSH_NULL", "RESUME"}


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
    for code in _codes_that_see(function.__code__, name):
        used = _attributes_in(code, name, "len" not in function.__globals__)
        if used is None or "__class__" in code.co_freevars:
            return None
        found |= used
    return found


def _codes_that_see(code: types.CodeType, name: str) -> Iterator[types.CodeType]:
    yield code
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType) and name in inner.co_freevars:
            yield from _codes_that_see(inner, name)


def _attributes_in(code: types.CodeType, name: str, has_len: bool) -> set[str] | None:
    found: set[str] = set()
    steps = [each for each in dis.get_instructions(code) if each.opname not in _LEFT_OUT]
    for before, step, after in zip(
        [steps[0], *steps], steps, [*steps[1:], steps[-1]], strict=False
    ):
        used = _locals_in(step)
        is_handed_on = step.opname in _ONLY_HAND_ON or (
            step.opname == "LOAD_FAST" and name in code.co_cellvars  # as from Python 3.13 on
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


def parameters_of(node: ast.FunctionDef) -> list[str]:
    """List the parameters, those that are given by position first."""
    given = node.args
    more = [each for each in (given.vararg, given.kwarg) if each is not None]
    return [each.arg for each in (*given.posonlyargs, *given.args, *given.kwonlyargs, *more)]


def is_passed_on(name: str, nodes: Iterable[ast.AST]) -> bool:
    """Whether a name is used for more than its attributes and its length."""
    every = [inner for node in nodes for inner in ast.walk(node)]
    harmless = {id(each.value) for each in every if isinstance(each, ast.Attribute)} | {
        id(each.args[0]) for each in every if isinstance(each, ast.Call) and _is_length(each)
    }
    return any(
        isinstance(each, ast.Name) and each.id == name and id(each) not in harmless
        for each in every
    )


def _is_length(node: ast.Call) -> bool:
    return isinstance(node.func, ast.Name) and node.func.id == "len" and len(node.args) == 1
