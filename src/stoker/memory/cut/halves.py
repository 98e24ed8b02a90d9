"""Splits a function in two at one of its steps: a prefix, and what goes on from where it stopped.

A step is an expression that is evaluated at the top level of the function or in the branches of its
`if`s (hoist.py), or a whole statement of another kind: a loop, `with` and `try` are one step each.
Inside a step the cut goes on in what the step calls (link.py).

    front(*arguments) -> Stopped, or what the function returns
    kept(...) -> Reached(way, values)           way: by which the function goes on
    rest(reached, ...)() -> what the function would have returned

Promise: one after the other they do what the function does, and tracebacks show the function's file,
name and lines, and nothing of ours between it and what it calls.
"""

import ast
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

from stoker.fingerprint.names import reads_of
from stoker.memory.cut.hoist import hoisted, rebuilt, steps_of
from stoker.memory.cut.language import is_passed_on, locals_of, parameters_of
from stoker.memory.cut.rewrite import (
    BACK,
    FRONT,
    TESTED,
    VALUE,
    WithoutCallee,
    WithoutTests,
    copied,
    declared,
    drop_unread,
    function_like,
    looked_up_in,
    named,
    parted,
)
from stoker.memory.cut.source import NotCuttable, compiled, definition_of
from stoker.memory.cut.stepped import CALL, LOOK, Stepped

__all__ = ["RETURNED", "Halves", "Inner", "NotCuttable", "Reached", "Split", "Stopped"]

_LOCALS, _STOPPED = "@locals", "@stopped"
RETURNED = -1  # the way of a prefix that has returned: its value is what the function returns
_MAX_STEPS = 4000


class Stopped(NamedTuple):
    """Where a prefix stopped, with all its local names."""

    way: int
    names: dict[str, Any]


class Reached(NamedTuple):
    """Where a prefix stopped. way: an index of the function's ways, or RETURNED; values: of the names
    that are live; mine: those of them that are the dataset; inner: where what it called stopped;
    looked_up: what was looked up to the left of the cut, which is not kept: a hit looks it up."""

    way: int
    values: dict[str, Any]
    mine: tuple[str, ...] = ()
    inner: "Reached | None" = None
    looked_up: dict[str, Any] = {}  # noqa: RUF012  # of a NamedTuple, and not written to

    def items(self) -> list[Any]:
        """List way, values and names of the function, then of what it called, and so on inward."""
        inner = [] if self.inner is None else self.inner.items()
        return [self.way, self.values, self.mine, *inner]

    def ways(self) -> tuple[int, ...]:
        """Return the way of the function, then of what it called, and so on inward."""
        return (self.way, *(() if self.inner is None else self.inner.ways()))

    @classmethod
    def of_items(cls, items: Sequence[Any]) -> "Reached":
        way, values, mine, *rest = items
        return cls(way, values, mine, cls.of_items(rest) if rest else None)


class Inner(Protocol):
    """What a step calls, cut in two."""

    def front(self, callee: Any) -> Any:
        """Return what is called in place of the callee: its first half, or all of it."""

    def kept(self, returned: Any, dataset: Any) -> Reached:
        """Take in what that has returned."""

    def back(self, callee: Any, reached: Reached) -> Callable[[], Any]:
        """Return the second half. callee: of a hit; of others it is the one of the first half."""


class Split:
    """A function that can be split, and its steps. Raises NotCuttable."""

    def __init__(self, function: Any) -> None:
        self.function = function
        self.definition = definition_of(function)
        self._local = locals_of(function, self.definition)
        numbered = list(_numbered(self.definition.body, 0))
        self.num_steps = len(numbered)
        self.lines = [node.lineno for _, node in numbered]  # of each step
        if self.num_steps > _MAX_STEPS:
            raise NotCuttable("it has too many steps")

    def watched(
        self, look: Callable[[int], object], call: Callable[[int, Any], Any]
    ) -> Callable[..., Any]:
        """Return a function that does the same, and calls `look` with the number of each step before
        it runs. call: given a step and what it calls, returns what is called in its place."""
        body = Stepped().block(self.definition.body)
        node = rebuilt(self.definition, {"body": body or [ast.Pass()]})
        return compiled(self.function, node, {LOOK: look, CALL: call})

    def at(self, step: int, inner: Inner | None = None) -> "Halves":
        """Split before a step; inner: in what it calls."""
        return Halves(self.function, self.definition, self._local, step, inner)


class Halves:
    """The two halves of a function.

    front: the first, to be called as the function is; local: the function's local names; callee: the
    expression of what is called by the step that is cut inside; prefix_code: the first half to be looked into, without what is ours
    and without the callee; without_tests: the same without tests of the first parameter's attributes,
    of which only the result counts; tested: these attributes.
    """

    def __init__(
        self,
        function: Any,
        node: ast.FunctionDef,
        local: frozenset[str],
        step: int,
        inner: Inner | None,
    ) -> None:
        self.local = local
        self.function, self.definition, self._inner = function, node, inner
        self.parameters = parameters_of(node)
        self.first = self.parameters[0] if node.args.posonlyargs or node.args.args else None
        self.callee: ast.expr | None = None
        self._ways: list[list[ast.stmt]] = []  # what is left to run, by way
        self._way_inside = -1  # by which the callee's second half goes on
        self._looked_up: dict[str, ast.expr] = {}  # to the left of the cut, by the name it went to
        self._parts: dict[str, object] = {}
        if inner is not None:
            self._parts = {FRONT: inner.front, BACK: inner.back}
        body, has_cut = self._prefix(node.body, [], step, 0)
        if not has_cut:
            raise NotCuttable(f"it has no step {step}")
        body = [
            *declared(local, body[0]),
            *body,
        ]  # a name that only the rest binds is local here too
        names: dict[str, object] = {_LOCALS: locals, _STOPPED: Stopped, **self._parts}
        self.front = compiled(function, rebuilt(node, {"body": body}), names)
        bare = rebuilt(node, {"body": [WithoutCallee().visit(each) for each in copied(body)]})
        drop_unread(bare, self._looked_up)
        self.prefix_code = compiled(function, bare, dict.fromkeys(names))
        without = WithoutTests(self.first or "")
        node = rebuilt(bare, {"body": [without.visit(each) for each in copied(bare.body)]})
        self.without_tests: Any = compiled(function, node, dict.fromkeys((*names, TESTED)))
        self.tested = without.tested
        self.live = [self._live_in(rest) for rest in self._ways]

    @functools.cached_property
    def names_behind(self) -> set[str]:
        """The attributes that the second half's own code names."""
        nodes = (node for rest in self._ways for each in rest for node in ast.walk(each))
        return {node.attr for node in nodes if isinstance(node, ast.Attribute)}

    def _live_in(self, rest: list[ast.stmt]) -> list[str]:
        """Return the names that the rest of the function reads, as the compiler has it."""
        body = named(rest, self._looked_up) or [ast.copy_location(ast.Pass(), self.definition)]
        nodes = (node for each in body for node in ast.walk(each))
        ours = {node.id for node in nodes if isinstance(node, ast.Name) and node.id[0] == "@"}
        known = sorted({*self.local, *ours} - self._parts.keys())
        alone = function_like(self.definition, body, (), known)
        read = reads_of(compiled(self.function, alone, self._parts).__code__, known)
        if self.first is not None and "__class__" in self.function.__code__.co_freevars:
            read.add(self.first)  # super() takes it
        return sorted(read)

    def kept(self, returned: Any, given: dict[str, Any], dataset: Any) -> Reached:
        """Take in what `front` has returned. given: values of parameters that need not be kept."""
        if type(returned) is not Stopped:
            return Reached(RETURNED, {"": returned})
        way, found = returned
        live = [name for name in self.live[way] if name in found and name != VALUE]
        live = [name for name in live if found[name] is not given.get(name, found)]
        values = {name: found[name] for name in live if found[name] is not dataset}
        mine = tuple(name for name in live if found[name] is dataset)
        inner = None
        if way == self._way_inside and self._inner is not None:
            inner = self._inner.kept(found[VALUE], dataset)
        looked_up = {name: found[name] for name in self._looked_up if name in found}
        return Reached(way, values, mine, inner, looked_up)

    def rest(
        self, reached: Reached, given: dict[str, Any], dataset: Any, is_hit: bool
    ) -> Callable[[], Any]:
        """Return the second half, to be called without arguments. is_hit: the first has not run."""
        way, values, mine, inner, looked_up = reached
        if way == RETURNED:
            return functools.partial(_same, values[""])
        known = given | values | dict.fromkeys(mine, dataset)
        if not is_hit:
            known |= looked_up
        if inner is not None:
            known[VALUE] = inner
        names = tuple(sorted(known.keys() & self._wanted(way), key=lambda each: each != self.first))
        rest = self._rest(way, names, is_hit)
        return functools.partial(rest, *[known[name] for name in names])

    @functools.lru_cache(maxsize=16)  # noqa: B019  # as many as the function has ways
    def _wanted(self, way: int) -> frozenset[str]:
        first = {self.first} if self.first else set()
        return frozenset(self.live[way]) | first | self._looked_up.keys()

    @functools.lru_cache(maxsize=32)  # noqa: B019
    def _rest(self, way: int, names: tuple[str, ...], is_hit: bool) -> Callable[..., Any]:
        """Compile the second half for values of these names; others that it reads are unbound."""
        unbound = [name for name in self.live[way] if name not in names]
        body = self._ways[way] or [ast.copy_location(ast.Pass(), self.definition)]
        if is_hit:
            body = named(body, self._looked_up)
        if way == self._way_inside and not is_hit:
            body = [WithoutCallee().visit(each) for each in copied(body)]
        made = compiled(
            self.function, function_like(self.definition, body, names, unbound), self._parts
        )
        made.__defaults__ = made.__kwdefaults__ = None
        return made

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
                taken, left = hoisted(statement, step - number, number, self.local)
                self._looked_up = looked_up_in(taken)
                if self._parts:
                    self.callee, front, left = parted(left)
                    if isinstance(self.callee, ast.Name):
                        self.callee = self._looked_up.get(self.callee.id, self.callee)
                    taken.append(front)
                    self._way_inside = len(self._ways)
                return [*done, *taken, self._stop([left, *rest], statement)], True
            number += num
            if isinstance(statement, ast.If):
                inside, number = self._branches(statement, rest, step, number)
                if inside is not None:
                    return [*done, inside, self._stop(rest, statement)], True
                statement = self._held_back(statement)
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

    def _held_back(self, statement: ast.If) -> ast.If:
        """Stop at branches that end the function and pass on all that it is bound to, as
        `if isinstance(i, slice): return Subset(self, i)`: in the prefix that would be its reach."""
        changed: dict[str, Any] = {}
        for name in ("body", "orelse"):
            branch = getattr(statement, name)
            if len(branch) == 1 and isinstance(branch[0], ast.If):
                changed[name] = [self._held_back(branch[0])]
            elif self._ends_and_passes_on(branch):
                changed[name] = [self._stop(branch, branch[0])]
        return rebuilt(statement, changed) if changed else statement

    def _ends_and_passes_on(self, branch: list[ast.stmt]) -> bool:
        if self.first is None or not branch or not isinstance(branch[-1], (ast.Return, ast.Raise)):
            return False
        return is_passed_on(self.first, branch)

    def _stop(self, rest: list[ast.stmt], near: ast.stmt) -> ast.stmt:
        """Return the statement that ends the prefix; the function goes on with `rest`."""
        self._ways.append(rest)
        text = f"return stopped({len(self._ways) - 1}, held())"
        statement = ast.parse(text).body[0]
        for node in ast.walk(statement):
            ast.copy_location(node, near)
            if isinstance(node, ast.Name):
                node.id = _STOPPED if node.id == "stopped" else _LOCALS
        return statement


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


def _same(value: Any) -> Any:
    return value
