"""Takes expressions out of a statement, in the order in which Python evaluates them.

`return self.augment(load(self.paths[i])), y` is three steps: `@0 = self.paths[i]`, `@1 = load(@0)`,
`return self.augment(@1), y`. Names, `super()` and attributes of these are no steps; those that stand
to the left of a step are looked up before it, into names of their own. Positions in the source are
kept, for tracebacks.

Source of the order: Python's language reference, 6.16 "Evaluation order".
Pure: standard library only.
"""

import ast
from collections.abc import Callable, Container
from typing import Any, TypeVar

_Node = TypeVar("_Node", bound=ast.AST)
Make = Callable[[ast.expr], ast.expr]

# Evaluated as a whole: what is inside may not be evaluated at all, or in another scope.
_WHOLE = (
    ast.BoolOp, ast.IfExp, ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp,
    ast.NamedExpr, ast.JoinedStr, ast.FormattedValue,
)  # fmt: skip
_STEPS = (ast.Call, ast.Subscript, ast.BinOp, ast.UnaryOp, ast.Compare)
_STILL = (ast.Constant, ast.Name, ast.Starred, ast.Tuple, ast.expr_context, ast.keyword)
_SIMPLE = (ast.Assign, ast.AnnAssign, ast.Return, ast.Expr)


def value_of(statement: ast.stmt) -> ast.expr | None:
    """Return the expression of a statement of which steps can be taken out; None if there is none."""
    value = statement.test if isinstance(statement, ast.If) else None
    if isinstance(statement, _SIMPLE):
        value = statement.value
    if value is None or any(isinstance(each, ast.NamedExpr) for each in ast.walk(value)):
        return None  # what it binds may be read beside it
    return value


def with_value(statement: ast.stmt, value: ast.expr) -> ast.stmt:
    """Return the statement with another expression in place of `value_of`."""
    field = "test" if isinstance(statement, ast.If) else "value"
    return rebuilt(statement, {field: value})


def rebuilt(node: _Node, changed: dict[str, Any]) -> _Node:
    """Return a copy of a node, in its place of the source, with some fields changed."""
    fields: dict[str, Any] = {name: getattr(node, name, None) for name in node._fields}
    return ast.copy_location(type(node)(**(fields | changed)), node)


def steps_of(statement: ast.stmt) -> list[ast.expr]:
    """List the expressions of a statement that are steps, in the order of their evaluation."""
    found: list[ast.expr] = []
    value = value_of(statement)

    def note(node: ast.expr) -> ast.expr:
        found.append(node)
        return node

    if value is not None:
        _visit(value, note)
    return found


def hoisted(
    statement: ast.stmt, num: int, first_number: int, local: Container[str] = ()
) -> tuple[list[ast.stmt], ast.stmt]:
    """Take the first `num` steps out of a statement, and what is looked up before the last of them: so
    nothing is looked up later than it would be. local: names that no step can change.

    Returns assignments to names `@n`, n from `first_number` on, and `@n.k` for what is looked up; and
    the statement that is left.
    """
    taken: list[ast.stmt] = []
    number, num_names = first_number, 0
    end = first_number + num

    def take(node: ast.expr) -> ast.expr:
        nonlocal number
        if number == end:
            return node
        number += 1
        return _assigned(f"@{number - 1}", node, taken)

    def look_up(node: ast.expr) -> ast.expr:
        nonlocal num_names
        if number == end or (isinstance(node, ast.Name) and node.id in local):
            return node
        num_names += 1
        return _assigned(f"@{number}.{num_names}", node, taken)

    value = value_of(statement)
    if value is None or num == 0:
        return [], statement
    return taken, with_value(statement, _visit(value, take, look_up))


def _assigned(name: str, node: ast.expr, taken: list[ast.stmt]) -> ast.expr:
    """Assign an expression to a name; returns the name in its place."""
    target = ast.copy_location(ast.Name(name, ast.Store()), node)
    taken.append(ast.copy_location(ast.Assign([target], node), node))
    return ast.copy_location(ast.Name(name, ast.Load()), node)


def replaced_first(statement: ast.stmt, by: ast.expr) -> ast.stmt:
    """Return the statement with another expression in place of its first step."""
    left = [by]
    value = value_of(statement)
    assert value is not None
    return with_value(statement, _visit(value, lambda node: left.pop() if left else node))


def _visit(node: ast.expr, make: Make, look_up: Make = lambda node: node) -> ast.expr:
    """Rebuild an expression with `make` called on each step, inner ones first. look_up: called on
    each name, and each attribute of names."""
    if isinstance(node, ast.Constant):
        return node
    if is_looked_up(node):
        return look_up(node)
    if isinstance(node, _WHOLE) or _unpacks_before_a_step(node):
        return make(node)
    if isinstance(node, ast.Dict):
        fields = _visited_dict(node, make, look_up)
    else:
        fields = {name: _visited(getattr(node, name), make, look_up) for name in _in_order(node)}
    made = rebuilt(node, fields)
    if isinstance(node, ast.Attribute) and is_looked_up(made):
        return look_up(made)  # of a step that was taken out
    return make(made) if isinstance(node, _STEPS) or _unpacks(node) else made


def is_looked_up(node: ast.AST) -> bool:
    """Whether a node is a name, super(), or an attribute of such."""
    if isinstance(node, ast.Attribute):
        return is_looked_up(node.value)
    return isinstance(node, ast.Name) or is_super(node)


def is_super(node: ast.AST) -> bool:
    """Whether a node is super()."""
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "super"
        and not node.args
        and not node.keywords
    )


def _unpacks(node: ast.expr) -> bool:
    """Whether a call or display runs through what it is given, by `*` or `**`."""
    return any(_is_unpacked(each) for each in _parts_of(node))


def _unpacks_before_a_step(node: ast.expr) -> bool:
    """Whether a call or display does so before it evaluates what follows: nothing is taken out then."""
    parts = _parts_of(node)
    first = next((k for k, each in enumerate(parts) if _is_unpacked(each)), len(parts))
    later = (inner for each in parts[first + 1 :] for inner in ast.walk(each))
    return any(not isinstance(inner, _STILL) for inner in later)


def _is_unpacked(part: ast.AST) -> bool:
    return isinstance(part, ast.Starred) or (isinstance(part, ast.keyword) and part.arg is None)


def _parts_of(node: ast.expr) -> list[ast.AST]:
    """List what a call or display is made of, in the order of evaluation."""
    if isinstance(node, ast.Call):
        return [*node.args, *node.keywords]
    if isinstance(node, ast.Dict):
        pairs = zip(node.keys, node.values, strict=True)
        return [ast.keyword(None, v) if k is None else ast.Tuple([k, v]) for k, v in pairs]
    return list(node.elts) if isinstance(node, (ast.Tuple, ast.List, ast.Set)) else []


def _in_order(node: ast.expr) -> tuple[str, ...]:
    match node:
        case ast.Call():
            return "func", "args", "keywords"
        case ast.Subscript():
            return "value", "slice"
        case ast.BinOp():
            return "left", "right"
        case ast.UnaryOp():
            return ("operand",)
        case ast.Compare():
            return ("left", "comparators") if len(node.comparators) == 1 else ("left",)
        case ast.Attribute() | ast.Starred():
            return ("value",)
        case ast.Tuple() | ast.List() | ast.Set():
            return ("elts",)
        case ast.Slice():
            return "lower", "upper", "step"
    return ()


def _visited(value: object, make: Make, look_up: Make) -> object:
    if isinstance(value, list):
        return [_visited(each, make, look_up) for each in value]
    if isinstance(value, ast.keyword):
        inner = _visit(value.value, make, look_up)
        return ast.copy_location(ast.keyword(value.arg, inner), value)
    return _visit(value, make, look_up) if isinstance(value, ast.expr) else value


def _visited_dict(node: ast.Dict, make: Make, look_up: Make) -> dict[str, Any]:
    """Keys and values of a dict display are evaluated by turns."""
    keys, values = [], []
    for key, value in zip(node.keys, node.values, strict=True):
        keys.append(None if key is None else _visit(key, make, look_up))
        values.append(_visit(value, make, look_up))
    return {"keys": keys, "values": values}
