"""Finds a function's definition in its source, and compiles functions in its place.

Promise: a definition is returned only if compiling the source again gives the function's own code;
so an edited file, generated code and what a tool has rewritten are left alone.
"""

import ast
import inspect
import linecache
import tokenize
import types
from collections.abc import Callable, Sequence
from typing import Any

from stoker.fingerprint.names import codes_in, names_in

_FUTURES = 0x1FF0000  # compiler flags of `from __future__`. Source: Include/cpython/compile.h
_IS_NESTED, _IS_OPTIMISED = 0x10, 0x1  # flags of code objects. Source: Include/cpython/code.h
_OUTER = "@outer"
_PLAIN_DECORATORS = {
    "staticmethod",
    "classmethod",
}  # they decide how a function is found, and no more


class NotCuttable(Exception):
    """A function cannot be split; says why."""


def definition_of(function: Callable[..., Any]) -> ast.FunctionDef:
    """Return the syntax tree of a function, without annotations and defaults. Raises NotCuttable."""
    if type(function) is not types.FunctionType:
        raise NotCuttable("not a function of Python's")
    code = function.__code__
    lines = linecache.getlines(code.co_filename, function.__globals__)
    if not lines:
        raise NotCuttable(f"its source {code.co_filename} is not there")
    try:
        node = _parsed(lines, code.co_firstlineno)
    except (SyntaxError, ValueError, tokenize.TokenError):
        raise NotCuttable("its source was changed") from None
    if node is None or node.name != code.co_name:
        raise NotCuttable("its definition was not found, or has a decorator")
    node = _bare(node)
    if not _is_of(node, function):
        raise NotCuttable("its source was changed, or something has rewritten it")
    return node


def _is_of(node: ast.FunctionDef, function: Any) -> bool:
    """Whether a definition gives the function's own code. CPython compiles `name.method()` in another
    way where the module imports that name, so both are tried."""
    code, held = function.__code__, function.__globals__
    foreign = [
        name
        for name in dict.fromkeys(names_in(code))
        if name in held and getattr(held[name], "__module__", None) != function.__module__
    ]
    for imported in (
        foreign,
        [name for name in foreign if type(held[name]) is types.ModuleType],
        [],
    ):
        again = compiled(function, node, {}, imported).__code__
        flags = again.co_flags & ~_IS_NESTED | code.co_flags & _IS_NESTED
        if again.replace(co_flags=flags) == code:
            return True
    return False


def _parsed(lines: list[str], first: int) -> ast.FunctionDef | None:
    """Parse the definition that begins at a line, counted from 1."""
    block = inspect.getblock(lines[first - 1 :])
    is_inside = block[0][:1].isspace()
    before = "\n" * (first - 2) + "if 1:\n" if is_inside else "\n" * (first - 1)
    found = ast.parse(before + "".join(block)).body
    if is_inside and isinstance(found[0], ast.If):
        found = found[0].body
    node = found[0]
    if not isinstance(node, ast.FunctionDef):
        return None
    known = [each for each in node.decorator_list if getattr(each, "id", "") in _PLAIN_DECORATORS]
    begins = node.decorator_list[0].lineno if node.decorator_list else node.lineno
    return node if known == node.decorator_list and begins == first else None


def _bare(node: ast.FunctionDef) -> ast.FunctionDef:
    """Drop what is evaluated where the function is defined, and not where it is called."""
    given = node.args
    given.defaults, given.kw_defaults = [], [None] * len(given.kwonlyargs)
    for each in (*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg):
        if each is not None:
            each.annotation = None
    node.returns = None
    return node


def compiled(
    original: Any, node: ast.FunctionDef, names: dict[str, object], imported: Sequence[str] = ()
) -> Callable[..., Any]:
    """Compile a definition as if it stood in the original's place: file, lines, class, closure,
    defaults. names: further free variables of it, with their values; imported: by its module."""
    code = original.__code__
    free = [*code.co_freevars, *names]
    owner = code.co_qualname.split(".")[-2] if "." in code.co_qualname else "<locals>"
    body: list[ast.stmt] = [node]
    if owner != "<locals>":  # names like self.__x are mangled with it; super() needs __class__
        body = [ast.ClassDef(owner, [], [], [node], [], **_type_params())]
    elif node.name not in free:  # a function that calls itself finds itself where others do
        body = [ast.Global([node.name]), node]
    arguments = [ast.arg(name) for name in free if name != "__class__"]
    outer = ast.FunctionDef(
        _OUTER, ast.arguments([], arguments, None, [], [], None, []), body, [], **_type_params()
    )
    imports: list[ast.stmt] = [ast.Import([ast.alias(name)]) for name in imported]
    module = ast.Module([*imports, outer], [])
    for inner in (*imports, outer, *body):
        ast.copy_location(inner, node)
    ast.fix_missing_locations(module)
    flags = code.co_flags & _FUTURES
    whole = compile(module, code.co_filename, "exec", flags, dont_inherit=True)
    made = next(
        each
        for each in codes_in(whole)
        if each.co_name == node.name and each.co_flags & _IS_OPTIMISED
    ).replace(co_qualname=code.co_qualname)
    cells = dict(zip(code.co_freevars, original.__closure__ or (), strict=True))
    cells |= {name: types.CellType(value) for name, value in names.items()}
    if any(name not in cells for name in made.co_freevars):
        raise NotCuttable("it uses names of a scope that cannot be built again")
    closure = tuple(cells[name] for name in made.co_freevars)
    defaults = original.__defaults__
    function = types.FunctionType(made, original.__globals__, original.__name__, defaults, closure)
    function.__kwdefaults__ = original.__kwdefaults__
    return function


def _type_params() -> dict[str, Any]:
    return {"type_params": []} if "type_params" in ast.FunctionDef._fields else {}
