"""Resolves the names that a function's source uses to the objects they stand for, without running it.

Promise: calls nothing of the script's, imports nothing; a name in a module that was not imported yet is a `Named`.
What cannot be told (a method of an unknown object) is NOTHING; a function without a source uses no names.
"""

import ast
import builtins
import functools
import inspect
import linecache
import sys
import types
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple


class Named(str):
    """The dotted name of something in a module that was not imported."""


class Use(NamedTuple):
    """A use of a name. value: what it stands for, or NOTHING; attribute: the name, if it follows a
    dot; line: 1-based; beside: all names on that line; called_without: whether it is called at once
    with nothing, or with None.
    """

    value: Any
    attribute: str
    line: int
    beside: frozenset[str]
    called_without: bool


NOTHING = object()


def uses(code: types.CodeType, names: Mapping[str, Any], local: Mapping[str, Any]) -> Iterator[Use]:
    """Iterate every use of a name in the source of a code object, and of the functions inside it.

    names: the globals; local: what is known of other names, e.g. closures.
    """
    nodes = [node for part in _parts_of(code) for node in ast.walk(part)]
    own: dict[str, Any] = {**dict.fromkeys(code.co_varnames, NOTHING), **local}
    called, used = set(), []
    beside: dict[int, set[str]] = {}
    for node in nodes:
        if isinstance(node, ast.Import | ast.ImportFrom):
            own |= _imported(node)
        elif isinstance(node, ast.Call) and not node.keywords and all(map(_is_none, node.args)):
            called.add(node.func)
        elif isinstance(node, ast.Name | ast.Attribute):
            name = node.id if isinstance(node, ast.Name) else node.attr
            beside.setdefault(node.end_lineno or 0, set()).add(name)
            used.append(node)
    for node in used:
        line, attribute = node.end_lineno or 0, node.attr if isinstance(node, ast.Attribute) else ""
        yield Use(
            _value(node, names, own), attribute, line, frozenset(beside[line]), node in called
        )


def _parts_of(code: types.CodeType) -> list[ast.AST]:
    """Return where a code object is in its file: lambdas that begin on one line are not told apart."""
    line = 0 if code.co_name == "<module>" else code.co_firstlineno
    return _functions(code.co_filename).get((code.co_name, line), [])


@functools.lru_cache(maxsize=256)
def _functions(file: str) -> dict[tuple[str, int], list[ast.AST]]:
    """Return a file's functions by name and first line, decorators included; itself as <module>, 0."""
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError):
        return {}
    found: dict[tuple[str, int], list[ast.AST]] = {("<module>", 0): [tree]}
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            line = min(part.lineno for part in (node, *getattr(node, "decorator_list", ())))
            found.setdefault((getattr(node, "name", "<lambda>"), line), []).append(node)
    return found


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _imported(node: ast.Import | ast.ImportFrom) -> dict[str, Any]:
    found = {}
    for alias in node.names:
        whole = alias.name if alias.asname else alias.name.partition(".")[0]
        if isinstance(node, ast.ImportFrom):
            found[alias.asname or alias.name] = attribute_of(_module(node.module or ""), alias.name)
        else:
            found[alias.asname or whole] = _module(whole)
    return found


def _value(node: ast.AST, names: Mapping[str, Any], own: Mapping[str, Any]) -> Any:
    if isinstance(node, ast.Attribute):
        return attribute_of(_value(node.value, names, own), node.attr)
    if not isinstance(node, ast.Name):
        return NOTHING
    others = names.get(node.id, getattr(builtins, node.id, NOTHING))
    return own.get(node.id, others)


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


def _module(name: str) -> Any:
    return sys.modules.get(name) or Named(name)
