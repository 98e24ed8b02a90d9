"""Splits a function in two at one of its steps: a prefix, and what goes on from where it stopped.

A step is an expression that is evaluated at the top level of the function or in the branches of its
`if`s (hoist.py), or a whole statement of another kind: a loop, `with` and `try` are one step each.

    prefix(self, index) -> Reached(way, values)     way: by which the function goes on
    go_on(way, self, index, values) -> what the function would have returned

Promise: prefix followed by `go_on` with the same values does what the function does, and tracebacks
show the function's file, name and lines.
"""

import ast
import functools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from stoker.memory.cut.hoist import hoisted, rebuilt, replaced_first, steps_of
from stoker.memory.cut.source import NotCuttable, compiled, definition_of

__all__ = ["Halves", "NotCuttable", "Parts", "Reached", "Split"]

# Functions that see the frame that calls them: by name, and as attributes of these modules.
_SEE_FRAMES = {
    "locals", "vars", "dir", "eval", "exec", "breakpoint", "globals", "_getframe", "currentframe",
    "getrefcount",
}  # fmt: skip
_FRAME_MODULES = {"sys", "inspect", "traceback", "gc", "builtins"}
_LOCALS, _REACHED, _WATCHED = "@locals", "@reached", "@watched"
FRONT, _BACK, _VALUE = "@front", "@back", "@value"
RETURNED = -1  # the way of a prefix that has returned: its value is the sample


class Reached(NamedTuple):
    """Where a prefix stopped. way: an index of `Halves`; values: of the names that are live."""

    way: int
    values: dict[str, Any]


class Split:
    """A function that can be split, and its steps. Raises NotCuttable."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self._node = definition_of(function)
        self._parameters = _parameters_of(self._node)
        _check(self._node)
        numbered = list(_numbered(self._node.body, 0))
        self.num_steps = len(numbered)
        self.lines = [node.lineno for _, node in numbered]  # of each step

    def stepper(self, watched: Callable[[Any], Any]) -> Callable[..., Any]:
        """Return a generator function that yields the number of each step before it runs, and
        returns what the function returns. watched: called with each function that a step calls."""
        body = _Stepped(watched_name=_WATCHED).block(self._node.body)
        node = _function_like(self._node, body or [ast.Pass()], self._parameters)
        return compiled(self.function, node, {_WATCHED: watched})

    def at(self, step: int, parts: "Parts | None" = None) -> "Halves":
        """Split before a step; parts: inside it, where it calls something that has parts."""
        return Halves(self.function, self._node, self._parameters, step, parts)


class Parts(NamedTuple):
    """The two parts of what a step calls with one value: each takes the callee and returns what is
    called in its place."""

    front: Callable[[Any], Any]
    back: Callable[[Any], Any]


class Halves:
    """The two halves of a function."""

    def __init__(
        self,
        function: Any,
        node: ast.FunctionDef,
        parameters: list[str],
        step: int,
        parts: Parts | None,
    ) -> None:
        self._function, self._node, self._parameters = function, node, parameters
        self._parts: dict[str, object] = (
            {} if parts is None else {FRONT: parts.front, _BACK: parts.back}
        )
        self._ways: list[list[ast.stmt]] = []  # what is left to run, by way
        body, has_cut = self._prefix(node.body, [], step, 0)
        if not has_cut:
            raise NotCuttable(f"it has no step {step}")
        prefix = _function_like(node, body, parameters)
        self.prefix_node = prefix
        names = {_LOCALS: locals, _REACHED: Reached, **self._parts}
        self._call = compiled(function, prefix, names)
        # To be looked into: without what is ours in it.
        self.prefix_code = compiled(function, prefix, dict.fromkeys(names))
        self._names = _bound_names(node) | set(parameters)
        self.live = [
            sorted(
                {name for name in _read(rest, set()) if name in self._names or name[0] == "@"}
                - {_BACK}
            )
            for rest in self._ways
        ]

    @functools.cached_property
    def names_behind(self) -> set[str]:
        """The attributes that the second half's own code names."""
        nodes = (node for rest in self._ways for each in rest for node in ast.walk(each))
        return {node.attr for node in nodes if isinstance(node, ast.Attribute)}

    def prefix(self, dataset: Any, index: Any) -> Reached:
        """Run the first half. Raises what the function raises."""
        reached = self._call(dataset, index)
        if type(reached) is not Reached:
            return Reached(RETURNED, {"": reached})
        found, given = reached.values, dict(zip(self._parameters, (dataset, index), strict=True))
        values = {
            name: found[name]
            for name in self.live[reached.way]
            if name in found and found[name] is not given.get(name, found)
        }
        return Reached(reached.way, values)

    def go_on(self, way: int, dataset: Any, index: Any, values: dict[str, Any]) -> Any:
        """Run the second half. Returns and raises what the function does."""
        if way == RETURNED:
            return values[""]
        first, second = self._parameters
        names = tuple(name for name in values if name != first and name != second)
        rest = self._rest(way, names)
        more = [values[name] for name in names]
        return rest(values.get(first, dataset), values.get(second, index), *more)

    @functools.lru_cache(maxsize=16)  # noqa: B019  # as many as the function has ways
    def _rest(self, way: int, names: tuple[str, ...]) -> Callable[..., Any]:
        """Compile the second half for values of these names; others that it reads are unbound."""
        given = [*self._parameters, *names]
        unbound = [name for name in self.live[way] if name not in given]
        body = self._ways[way] or [ast.copy_location(ast.Pass(), self._node)]
        return compiled(
            self._function, _function_like(self._node, body, given, unbound), self._parts
        )

    def _prefix(
        self, block: list[ast.stmt], after: list[ast.stmt], step: int, number: int
    ) -> tuple[list[ast.stmt], bool]:
        """Return a block up to the step, and whether the step is in it.

        after: what runs behind the block; number: of the block's first step.
        """
        done: list[ast.stmt] = []
        for k, statement in enumerate(block):
            rest = [*block[k + 1 :], *after]
            num = len(steps_of(statement)) + 1
            if step < number + num:
                taken, left = hoisted(statement, step - number, number)
                if self._parts:
                    front, left = _parted(left)
                    taken.append(front)
                return [*done, *taken, self._stop([left, *rest], statement)], True
            number += num
            if isinstance(statement, ast.If):
                inside, number = self._branches(statement, rest, step, number)
                if inside is not None:
                    return [*done, inside, self._stop(rest, statement)], True
            done.append(statement)
        return done, False

    def _branches(
        self, statement: ast.If, rest: list[ast.stmt], step: int, number: int
    ) -> tuple[ast.If | None, int]:
        """Return the statement with one branch stopped at the step, or None; and the next number."""
        for name in ("body", "orelse"):
            branch = getattr(statement, name)
            num = sum(1 for _ in _numbered(branch, 0))
            if step < number + num:
                stopped, _ = self._prefix(branch, rest, step, number)
                return rebuilt(statement, {name: stopped}), number
            number += num
        return None, number

    def _stop(self, rest: list[ast.stmt], near: ast.stmt) -> ast.stmt:
        """Return the statement that ends the prefix; the function goes on with `rest`."""
        self._ways.append(rest)
        text = f"return reached({len(self._ways) - 1}, held())"
        statement = ast.parse(text).body[0]
        for node in ast.walk(statement):
            ast.copy_location(node, near)
            if isinstance(node, ast.Name):
                node.id = _REACHED if node.id == "reached" else _LOCALS
        return statement


def _parted(statement: ast.stmt) -> tuple[ast.stmt, ast.stmt]:
    """Part the call that is the statement's first step: an assignment of what the callee's front
    returns, and the statement with the callee's back in its place. Raises NotCuttable."""
    steps = steps_of(statement)
    call = steps[0] if steps else None
    if not isinstance(call, ast.Call) or len(call.args) != 1 or call.keywords:
        raise NotCuttable("its step is no call with one value")
    if isinstance(call.args[0], ast.Starred):
        raise NotCuttable("its step is a call with a starred value")

    def in_part(name: str, argument: ast.expr) -> ast.Call:
        part = ast.Call(ast.Name(name, ast.Load()), [call.func], [])
        for node in (part, part.func):
            ast.copy_location(node, call.func)
        return ast.copy_location(ast.Call(part, [argument], []), call)

    target, value = ast.Name(_VALUE, ast.Store()), ast.Name(_VALUE, ast.Load())
    for node in (target, value):
        ast.copy_location(node, call.args[0])
    front = ast.copy_location(ast.Assign([target], in_part(FRONT, call.args[0])), call)
    return front, replaced_first(statement, in_part(_BACK, value))


class _Stepped:
    """Rebuilds statements so that the function yields before each step."""

    def __init__(self, watched_name: str) -> None:
        self._number = 0
        self._watched = watched_name

    def block(self, statements: list[ast.stmt]) -> list[ast.stmt]:
        found: list[ast.stmt] = []
        for statement in statements:
            taken, left = hoisted(statement, len(steps_of(statement)), self._number)
            for each in taken:
                found += [self._yield(each), self._with_watch(each)]
            found.append(self._yield(statement))
            if isinstance(left, ast.If):
                body, orelse = self.block(left.body), self.block(left.orelse)
                left = rebuilt(left, {"body": body, "orelse": orelse})
            found.append(left)
        return found

    def _yield(self, near: ast.stmt) -> ast.stmt:
        number = ast.Constant(self._number)
        self._number += 1
        made = ast.Expr(ast.Yield(number))
        for node in (made, made.value, number):
            ast.copy_location(node, near)
        return made

    def _with_watch(self, assignment: ast.stmt) -> ast.stmt:
        assert isinstance(assignment, ast.Assign)
        call = assignment.value
        if not isinstance(call, ast.Call):
            return assignment
        name = ast.Name(self._watched, ast.Load())
        watch = ast.Call(name, [call.func], [])
        for node in (name, watch):
            ast.copy_location(node, call.func)
        made = ast.copy_location(ast.Call(watch, call.args, call.keywords), call)
        return ast.copy_location(ast.Assign(assignment.targets, made), assignment)


def _numbered(block: list[ast.stmt], first: int) -> Iterator[tuple[int, ast.expr | ast.stmt]]:
    """Iterate the steps of a block, each with its number and its node, in the order of the text."""
    number = first
    for statement in block:
        nodes: list[ast.expr | ast.stmt] = [*steps_of(statement), statement]
        yield from enumerate(nodes, number)
        number += len(nodes)
        if isinstance(statement, ast.If):
            for branch in (statement.body, statement.orelse):
                inside = list(_numbered(branch, number))
                yield from inside
                number += len(inside)


def _parameters_of(node: ast.FunctionDef) -> list[str]:
    given = node.args
    names = [each.arg for each in (*given.posonlyargs, *given.args)]
    if len(names) != 2 or given.vararg or given.kwarg or given.kwonlyargs:
        raise NotCuttable("it takes more than an index")
    return names


def _check(node: ast.FunctionDef) -> None:
    """Raise NotCuttable for what a split would change."""
    for inner in ast.walk(node):
        if isinstance(inner, (ast.Yield, ast.YieldFrom, ast.Await, ast.Global, ast.Nonlocal)):
            raise NotCuttable(f"it has a {type(inner).__name__.lower()}")
        if isinstance(inner, (ast.FunctionDef, ast.ClassDef)) and inner is not node:
            raise NotCuttable("it defines a function or class")
        if isinstance(inner, ast.Name) and inner.id in _SEE_FRAMES | _FRAME_MODULES:
            raise NotCuttable(f"it uses {inner.id}, which may see its frame")


def _function_like(
    node: ast.FunctionDef, body: list[ast.stmt], names: list[str], unbound: list[str] | None = None
) -> ast.FunctionDef:
    """Return a definition with the same name and place. unbound: local names without a value."""
    if unbound:
        nothing = ast.parse("if 0: " + "; ".join(f"x{n} = 0" for n in range(len(unbound)))).body[0]
        targets = [each for each in ast.walk(nothing) if isinstance(each, ast.Name)]
        for target, name in zip(targets, unbound, strict=True):
            target.id = name
        for each in ast.walk(nothing):
            ast.copy_location(each, body[0])
        body = [nothing, *body]
    arguments = ast.arguments([], [ast.arg(name) for name in names], None, [], [], None, [])
    return rebuilt(node, {"args": arguments, "body": body, "returns": None})


def _bound_names(node: ast.FunctionDef) -> set[str]:
    return {
        each.id
        for each in ast.walk(node)
        if isinstance(each, ast.Name) and not isinstance(each.ctx, ast.Load)
    } | {each.name for each in ast.walk(node) if isinstance(each, ast.ExceptHandler) and each.name}


def _read(statements: list[ast.stmt], assigned: set[str]) -> set[str]:
    """Return the names that statements read before they surely assign them. assigned: those that
    have been; is added to."""
    found: set[str] = set()
    for statement in statements:
        if isinstance(statement, ast.If):
            found |= _loaded(statement.test) - assigned
            branches = [set(assigned), set(assigned)]
            for block, sure in zip((statement.body, statement.orelse), branches, strict=True):
                found |= _read(block, sure)
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
