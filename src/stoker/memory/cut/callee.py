"""Tells which function of Python's a callee runs and what it is bound to, and what an expression
stands for.

Ban: nothing of the script's is run: no property, no `__getattr__`.
"""

import ast
import builtins
import sys
import types
from collections.abc import Callable, Container
from typing import Any, NamedTuple

# Their functions do not draw for a script before they work for it, and their sources are long.
_NOT_ENTERED = (frozenset(sys.stdlib_module_names) - {"__main__"}) | {
    "PIL", "numpy", "scipy", "stoker", "torch",
}  # fmt: skip
UNKNOWN = object()


class Target(NamedTuple):
    """A function, its code and defaults as they were, and what it is bound to; UNKNOWN if to nothing."""

    function: types.FunctionType
    owner: Any
    code: types.CodeType
    defaults: object
    named_defaults: object

    def is_same(self, other: "Target | None") -> bool:
        return other is not None and all(one is two for one, two in zip(self, other, strict=True))

    def bound(self, function: Callable[..., Any]) -> Any:
        """Bind another function to the same."""
        return function if self.owner is UNKNOWN else types.MethodType(function, self.owner)


def target_of(callee: Any) -> Target | None:
    """Return what a callee runs: a function, a method or an object's `__call__`; None if that is
    nothing to be cut."""
    function: Any = callee
    owner: Any = UNKNOWN
    if type(callee) is types.FunctionType:
        pass
    elif type(callee) is types.MethodType:
        function, owner = callee.__func__, callee.__self__
    elif isinstance(callee, type):
        return None
    else:
        function, owner = of_class(type(callee), "__call__"), callee
    if type(function) is not types.FunctionType:
        return None
    if str(function.__module__).partition(".")[0] in _NOT_ENTERED:
        return None
    named = function.__kwdefaults__
    return Target(function, owner, function.__code__, function.__defaults__, named)


def resolved(
    node: ast.expr, function: Any, names: Container[str], first: str | None, owner: Any
) -> Any:
    """Return what an expression in a function's body stands for; UNKNOWN if that cannot be told
    without running something. names: its local ones; first, owner: the name of what it is bound to."""
    if isinstance(node, ast.Attribute):
        if isinstance(node.value, ast.Call):  # super()
            return _of_super(function, owner, node.attr)
        base = resolved(node.value, function, names, first, owner)
        return UNKNOWN if base is UNKNOWN else _attribute_of(base, node.attr)
    if not isinstance(node, ast.Name):
        return UNKNOWN
    if node.id == first:
        return owner
    if node.id in names or node.id[0] == "@":
        return UNKNOWN
    if node.id in function.__code__.co_freevars:
        return _in_closure(function, node.id)
    held = function.__globals__
    return held[node.id] if node.id in held else getattr(builtins, node.id, UNKNOWN)


def _in_closure(function: Any, name: str) -> Any:
    cell = dict(zip(function.__code__.co_freevars, function.__closure__, strict=True))[name]
    try:
        return cell.cell_contents
    except ValueError:  # not assigned yet
        return UNKNOWN


def _of_super(function: Any, owner: Any, name: str) -> Any:
    if "__class__" not in function.__code__.co_freevars:
        return UNKNOWN
    below = _in_closure(function, "__class__")
    order = type(owner).__mro__
    if below not in order:
        return UNKNOWN
    found = _held(order[order.index(below) + 1 :], name)
    return types.MethodType(found, owner) if isinstance(found, types.FunctionType) else UNKNOWN


def _attribute_of(base: Any, name: str) -> Any:
    """Return an attribute, unless that would run something."""
    if type(base) is types.ModuleType:
        return vars(base).get(name, UNKNOWN)
    if isinstance(base, type):
        found = of_class(base, name)
        found = found.__func__ if isinstance(found, staticmethod) else found
        return found if isinstance(found, types.FunctionType) else UNKNOWN
    if computes_attributes(type(base)):
        return UNKNOWN
    held = of_class(type(base), name)
    if name in vars(base) and not hasattr(type(held), "__set__"):
        return vars(base)[name]
    if isinstance(held, types.FunctionType):
        return types.MethodType(held, base)
    return held.__func__ if isinstance(held, staticmethod) else UNKNOWN


def of_class(kind: type, name: str) -> Any:
    """Return what a class and its bases hold under a name, as it lies there; None if nothing."""
    return _held(kind.__mro__[:-1], name)


def _held(kinds: tuple[type, ...], name: str) -> Any:
    return next((vars(kind)[name] for kind in kinds if name in vars(kind)), None)


def computes_attributes(kind: type) -> bool:
    """Whether a class decides itself what its attributes are; or has none in a dict."""
    own = of_class(kind, "__getattribute__") or of_class(kind, "__getattr__")
    return own is not None or not hasattr(kind, "__dictoffset__") or kind.__dictoffset__ == 0
