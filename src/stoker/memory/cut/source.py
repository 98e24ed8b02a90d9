"""Finds a function's definition in its source, and compiles functions in its place.

Promise: a definition is returned only if compiling the source again gives the function's own code;
so an edited file, generated code and what a tool has rewritten are left alone.
"""

import ast
import linecache
import types
from collections.abc import Callable, Iterator
from typing import Any

_FUTURES = 0x1FF0000  # compiler flags of `from __future__`. Source: Include/cpython/compile.h
_UNBOUND = "@unbound"


class NotCuttable(Exception):
    """A function cannot be split; says why."""


def definition_of(function: Callable[..., Any]) -> ast.FunctionDef:
    """Return the syntax tree of a function. Raises NotCuttable."""
    if type(function) is not types.FunctionType:
        raise NotCuttable("not a function of Python's")
    code = function.__code__
    text = "".join(linecache.getlines(code.co_filename, function.__globals__))
    if not text:
        raise NotCuttable(f"its source {code.co_filename} is not there")
    try:
        tree = ast.parse(text, code.co_filename)
        whole = compile(text, code.co_filename, "exec", code.co_flags & _FUTURES, dont_inherit=True)
    except (SyntaxError, ValueError):
        raise NotCuttable("its source was changed") from None
    if not any(each == code for each in _codes_in(whole) if each.co_name == code.co_name):
        raise NotCuttable("its source was changed, or something has rewritten it")
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.FunctionDef)
            and node.name == code.co_name
            and node.lineno == code.co_firstlineno
            and not node.decorator_list
        ):
            return node
    raise NotCuttable("its definition was not found, or has a decorator")


def _codes_in(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes_in(constant)


def compiled(original: Any, node: ast.FunctionDef, names: dict[str, object]) -> Callable[..., Any]:
    """Compile a definition as if it stood in the original's place: file, lines, class, closure.

    names: further free variables of it, with their values.
    """
    code = original.__code__
    free = [*code.co_freevars, *names]
    owner = code.co_qualname.split(".")[-2] if "." in code.co_qualname else "<locals>"
    body: ast.stmt = node
    if owner != "<locals>":  # names like self.__x are mangled with it; super() needs __class__
        body = ast.ClassDef(owner, [], [], [node], [], **_type_params())
    outer = ast.FunctionDef(
        "outer",
        ast.arguments(
            [], [ast.arg(name) for name in free if name != "__class__"], None, [], [], None, []
        ),
        [body],
        [],
        **_type_params(),
    )
    module = ast.Module([outer], [])
    for inner in (outer, body):
        ast.copy_location(inner, node)
    ast.fix_missing_locations(module)
    flags = code.co_flags & _FUTURES
    whole = compile(module, code.co_filename, "exec", flags, dont_inherit=True)
    found = [each for each in _codes_in(whole) if each.co_name == node.name]
    made = found[0].replace(co_qualname=code.co_qualname)
    cells = dict(zip(code.co_freevars, original.__closure__ or (), strict=True))
    cells |= {name: types.CellType(value) for name, value in names.items()}
    if any(name not in cells for name in made.co_freevars):
        raise NotCuttable("it uses names of a scope that cannot be built again")
    closure = tuple(cells[name] for name in made.co_freevars)
    return types.FunctionType(made, original.__globals__, original.__name__, None, closure)


def _type_params() -> dict[str, Any]:
    return {"type_params": []} if "type_params" in ast.FunctionDef._fields else {}
