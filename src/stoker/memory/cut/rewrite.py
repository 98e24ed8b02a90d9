"""Rewrites statements of a function that is cut: parts the call at the cut, and puts back what was
taken out.

Pure: standard library only.
"""

import ast
from collections.abc import Iterable
from typing import Any

from stoker.memory.cut.hoist import is_looked_up, rebuilt, replaced_first, steps_of
from stoker.memory.cut.source import NotCuttable

FRONT, BACK, VALUE, TESTED = "@front", "@back", "@value", "@tested"


def parted(statement: ast.stmt) -> tuple[ast.expr, ast.stmt, ast.stmt]:
    """Part the call that is the statement's first step: what it calls, an assignment of what the
    callee's front returns, and the statement with the callee's back in its place. Raises NotCuttable."""
    steps = steps_of(statement)
    call = steps[0] if steps else None
    if not isinstance(call, ast.Call):
        raise NotCuttable("its step is no call")
    target, value = ast.Name(VALUE, ast.Store()), ast.Name(VALUE, ast.Load())
    front = ast.Call(ast.Name(FRONT, ast.Load()), [call.func], [])
    back = ast.Call(ast.Name(BACK, ast.Load()), [call.func, value], [])
    for node in (target, value, front.func, front, back.func, back):
        ast.copy_location(node, call.func)
    first = ast.copy_location(ast.Call(front, call.args, call.keywords), call)
    second = ast.copy_location(ast.Call(back, [], []), call)
    assignment = ast.copy_location(ast.Assign([target], first), call)
    return call.func, assignment, replaced_first(statement, second)


def looked_up_in(taken: list[ast.stmt]) -> dict[str, ast.expr]:
    """Return what was looked up among what was taken out, by the name that it went to."""
    found = {}
    for each in taken:
        assert isinstance(each, ast.Assign)
        if is_looked_up(each.value) and isinstance(each.targets[0], ast.Name):
            found[each.targets[0].id] = each.value
    return found


class _Named(ast.NodeTransformer):
    """Puts what was looked up in place of the names that it went to."""

    def __init__(self, looked_up: dict[str, ast.expr]) -> None:
        self._looked_up = looked_up

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return self._looked_up.get(node.id, node)


def named(statements: list[ast.stmt], looked_up: dict[str, ast.expr]) -> list[ast.stmt]:
    if not looked_up:
        return statements
    return [_Named(looked_up).visit(each) for each in copied(statements)]


def drop_unread(bare: ast.FunctionDef, looked_up: dict[str, ast.expr]) -> None:
    """Leave out of a prefix what it looks up for the second half alone. Changes it."""
    read = {
        node.id
        for node in ast.walk(bare)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
    }
    unread = looked_up.keys() - read

    class Dropping(ast.NodeTransformer):
        def visit_Assign(self, node: ast.Assign) -> ast.AST:
            target = node.targets[0]
            if isinstance(target, ast.Name) and target.id in unread:
                return ast.copy_location(ast.Pass(), node)
            return node

    Dropping().visit(bare)


class WithoutCallee(ast.NodeTransformer):
    """Leaves out what is called by the step that is cut inside."""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        if isinstance(node.func, ast.Name) and node.func.id in (FRONT, BACK):
            nothing = ast.copy_location(ast.Constant(None), node.args[0])
            return rebuilt(node, {"args": [nothing, *node.args[1:]]})
        return self.generic_visit(node)


def copied(statements: list[ast.stmt]) -> list[ast.stmt]:
    """Copy statements, to be changed; what a NodeTransformer changes it changes in place."""
    return [_copy(each) for each in statements]


def _copy(node: Any) -> Any:
    if isinstance(node, list):
        return [_copy(each) for each in node]
    if not isinstance(node, ast.AST):
        return node
    return rebuilt(node, {name: _copy(getattr(node, name, None)) for name in node._fields})


def function_like(
    node: ast.FunctionDef, body: list[ast.stmt], names: tuple[str, ...], unbound: Iterable[str]
) -> ast.FunctionDef:
    """Return a definition with the same name and place. unbound: local names without a value."""
    arguments = ast.arguments([], [ast.arg(name) for name in names], None, [], [], None, [])
    body = [*declared(unbound, body[0]), *body]
    return rebuilt(node, {"args": arguments, "body": body, "returns": None})


def declared(names: Iterable[str], near: ast.stmt) -> list[ast.stmt]:
    """Return statements that make names local, and no more."""
    targets: list[ast.expr] = [ast.Name(name, ast.Store()) for name in sorted(names)]
    nothing = ast.If(ast.Constant(0), [ast.Assign(targets, ast.Constant(0))], [])
    for node in ast.walk(nothing):
        ast.copy_location(node, near)
    return [nothing] if targets else []


class WithoutTests(ast.NodeTransformer):
    """Leaves out the attributes of a name that are compared with None, or are all of a test: less of
    them is read than all. tested: these attributes."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.tested: set[str] = set()

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        last = node.comparators[0]
        is_none = isinstance(last, ast.Constant) and last.value is None
        if len(node.ops) == 1 and isinstance(node.ops[0], (ast.Is, ast.IsNot)) and is_none:
            return rebuilt(node, {"left": self._left_out(node.left)})
        return self.generic_visit(node)

    def visit_If(self, node: ast.If) -> ast.AST:
        return self.generic_visit(rebuilt(node, {"test": self._left_out(node.test)}))

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        return self.generic_visit(rebuilt(node, {"test": self._left_out(node.test)}))

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        if isinstance(node.op, ast.Not):
            node = rebuilt(node, {"operand": self._left_out(node.operand)})
        return self.generic_visit(node)

    def _left_out(self, node: ast.expr) -> ast.expr:
        value = node.value if isinstance(node, ast.Attribute) else None
        if not isinstance(node, ast.Attribute) or not isinstance(value, ast.Name):
            return node
        if value.id != self._name:
            return node
        self.tested.add(node.attr)
        return ast.copy_location(ast.Name(TESTED, ast.Load()), node)
