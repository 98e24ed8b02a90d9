"""Tells which names statements read, bind and pass on.

Pure: standard library only.
"""

import ast
from collections.abc import Iterable


def bound_in(node: ast.FunctionDef) -> set[str]:
    """Return the local names of a function, its parameters among them."""
    return {
        *parameters_of(node),
        *(
            each.id
            for each in ast.walk(node)
            if isinstance(each, ast.Name) and not isinstance(each.ctx, ast.Load)
        ),
        *(
            each.name
            for each in ast.walk(node)
            if isinstance(each, ast.ExceptHandler) and each.name
        ),
    }


def parameters_of(node: ast.FunctionDef) -> list[str]:
    """List the parameters, those that are given by position first."""
    given = node.args
    more = [each for each in (given.vararg, given.kwarg) if each is not None]
    return [each.arg for each in (*given.posonlyargs, *given.args, *given.kwonlyargs, *more)]


def read_by(statements: list[ast.stmt], assigned: set[str]) -> set[str]:
    """Return the names that statements read before they surely assign them. assigned: those that
    have been; is added to."""
    found: set[str] = set()
    for statement in statements:
        if isinstance(statement, ast.If):
            found |= _loaded(statement.test) - assigned
            branches = [set(assigned), set(assigned)]
            for block, sure in zip((statement.body, statement.orelse), branches, strict=True):
                found |= read_by(block, sure)
            assigned |= branches[0] & branches[1]
            continue
        found |= _loaded(statement) - assigned
        if isinstance(statement, ast.Assign):
            for target in statement.targets:
                names = target.elts if isinstance(target, ast.Tuple) else [target]
                assigned |= {name.id for name in names if isinstance(name, ast.Name)}
    return found


def _loaded(node: ast.AST) -> set[str]:
    """Return the names that are read, deleted or changed in place somewhere inside."""
    changed = {
        each.target.id
        for each in ast.walk(node)
        if isinstance(each, ast.AugAssign) and isinstance(each.target, ast.Name)
    }
    return changed | {
        each.id
        for each in ast.walk(node)
        if isinstance(each, ast.Name) and not isinstance(each.ctx, ast.Store)
    }


def is_passed_on(name: str, nodes: Iterable[ast.AST]) -> bool:
    """Whether a name is used for more than its attributes and its length."""
    every = [inner for node in nodes for inner in ast.walk(node)]
    harmless = {id(each.value) for each in every if isinstance(each, ast.Attribute)} | {
        id(each.args[0])
        for each in every
        if isinstance(each, ast.Call) and is_length_of(each, name)
    }
    return any(
        isinstance(each, ast.Name) and each.id == name and id(each) not in harmless
        for each in every
    )


def is_length_of(node: ast.AST, name: str) -> bool:
    """Whether a node is len(name)."""
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "len"
        and len(node.args) == 1
        and isinstance(node.args[0], ast.Name)
        and node.args[0].id == name
    )


def is_super(node: ast.AST) -> bool:
    """Whether a node is super()."""
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "super"
        and not node.args
        and not node.keywords
    )
