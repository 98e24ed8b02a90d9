"""The forms of Python that a function may be made of if it is to be split: a closed list.

What is not on it is not split. A split has two frames where the function has one, so nothing may see
the frame, and no function made in the first half may see a name that the second half binds anew.

Pure: standard library only.
"""

import ast
import builtins
import inspect
import symtable
import sys
import types
from collections.abc import Iterable, Iterator

from stoker.fingerprint.names import names_in
from stoker.memory.cut.source import NotCuttable

_FORMS = (
    # statements
    ast.AnnAssign, ast.Assert, ast.Assign, ast.AugAssign, ast.Break, ast.Continue, ast.Delete, ast.Expr,
    ast.For, ast.If, ast.Import, ast.ImportFrom, ast.Match, ast.Pass, ast.Raise, ast.Return, ast.Try,
    ast.While, ast.With,
    # expressions
    ast.Attribute, ast.BinOp, ast.BoolOp, ast.Call, ast.Compare, ast.Constant, ast.Dict, ast.DictComp,
    ast.FormattedValue, ast.GeneratorExp, ast.IfExp, ast.JoinedStr, ast.Lambda, ast.List, ast.ListComp,
    ast.Name, ast.NamedExpr, ast.Set, ast.SetComp, ast.Slice, ast.Starred, ast.Subscript, ast.Tuple,
    ast.UnaryOp,
    # what these are made of
    ast.ExceptHandler, ast.alias, ast.arg, ast.arguments, ast.boolop, ast.cmpop, ast.comprehension,
    ast.expr_context, ast.keyword, ast.match_case, ast.operator, ast.pattern, ast.unaryop, ast.withitem,
)  # fmt: skip
# They see the frame that calls them, or count who holds a value: by whatever name a function has them.
_SEE_FRAMES: tuple[object, ...] = (
    breakpoint, dir, eval, exec, globals, locals, vars, inspect.currentframe, inspect.stack,
    sys._getframe, sys.getrefcount, sys.setprofile, sys.settrace,
)  # fmt: skip
_FRAME_MODULES = {"builtins", "gc", "inspect", "sys", "traceback"}
_FRAME_ATTRIBUTES = {"__closure__", "cell_contents", "f_back", "f_locals", "gi_frame", "tb_frame"}
# They use up a generator expression before they return.
_CONSUMERS = {
    "all", "any", "dict", "frozenset", "list", "max", "min", "set", "sorted", "sum", "tuple",
}  # fmt: skip
_MADE = {"<genexpr>", "<lambda>"}  # code that may outlive the step that makes a function of it


def locals_of(function: types.FunctionType, node: ast.FunctionDef) -> frozenset[str]:
    """Return the local names of a function, its parameters among them. node: its definition.

    Raises NotCuttable if the function is made of anything that is not listed.
    """
    if getattr(node, "type_params", None):
        raise NotCuttable("it has type parameters")
    for inner in ast.walk(node):
        if inner is not node and not isinstance(inner, _FORMS):
            kind = type(inner).__name__.removesuffix("Def").lower()
            raise NotCuttable(f"it has a {kind}")
        _check_name(inner)
        _check_target(inner)
    for name in names_in(function.__code__):
        _check_global(function, name)
    inside = symtable.symtable(ast.unparse(node), "", "exec").get_children()
    # Before it come lambdas among its defaults, and what gives its annotations, as from Python 3.14 on.
    told = [each for each in inside if each.get_name() == node.name][-1].get_symbols()
    if any(_may_outlive(*each, function) for each in _functions_made_in(node)):
        lasting = {
            each.get_name() for each in told if each.is_parameter() and not each.is_assigned()
        }
        _check_captured(function.__code__, {*lasting, *function.__code__.co_freevars})
    return frozenset(each.get_name() for each in told if each.is_local())


def _check_name(node: ast.AST) -> None:
    if isinstance(node, ast.Attribute) and node.attr in _FRAME_ATTRIBUTES:
        raise NotCuttable(f"it uses {node.attr}, which may see its frame")
    name = node.id if isinstance(node, ast.Name) else getattr(node, "arg", None)
    if isinstance(name, str) and name.startswith("__") and not name.endswith("__"):
        raise NotCuttable(f"it has {name}, whose name depends on its class")


def _check_target(node: ast.AST) -> None:
    """CPython 3.11.2 binds `a, a = 1, 2` in another order where no function inside sees `a`."""
    if isinstance(node, (ast.Tuple, ast.List)) and isinstance(node.ctx, ast.Store):
        inside = [each for each in ast.walk(node) if isinstance(each, ast.Name)]
        names = [each.id for each in inside if isinstance(each.ctx, ast.Store)]
        if len(set(names)) < len(names):
            raise NotCuttable(f"it binds a name twice at once: {', '.join(names)}")


def _check_global(function: types.FunctionType, name: str) -> None:
    held = function.__globals__.get(name, getattr(builtins, name, None))
    module = held.__name__ if type(held) is types.ModuleType else name
    if module in _FRAME_MODULES or any(held is each for each in _SEE_FRAMES):
        raise NotCuttable(f"it uses {name}, which may see its frame")


def _functions_made_in(node: ast.FunctionDef) -> Iterator[tuple[ast.expr, ast.expr | None]]:
    """Iterate lambdas and generator expressions, each with what is called with it alone, keywords aside."""
    called = {
        id(call.args[0]): call.func
        for call in ast.walk(node)
        if isinstance(call, ast.Call) and len(call.args) == 1
    }
    for inner in ast.walk(node):
        if isinstance(inner, (ast.Lambda, ast.GeneratorExp)):
            yield inner, called.get(id(inner))


def _may_outlive(made: ast.expr, taker: ast.expr | None, function: types.FunctionType) -> bool:
    """Whether what a lambda or generator expression makes may live longer than the step it is in."""
    if isinstance(made, ast.Lambda) or not isinstance(taker, ast.Name):
        return True
    return taker.id not in _CONSUMERS or taker.id in function.__globals__


def _check_captured(code: types.CodeType, lasting: set[str]) -> None:
    """Raise NotCuttable if a lambda or generator expression sees any name but these, which nothing
    binds anew."""
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            seen = set(inner.co_freevars) - lasting
            if inner.co_name in _MADE and seen:
                raise NotCuttable(f"it makes a function that sees {min(seen)}")
            _check_captured(inner, lasting)


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
