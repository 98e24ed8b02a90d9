"""Rebuilds a function so that it tells of each of its steps before that runs.

Pure: standard library only.
"""

import ast

from stoker.memory.cut.hoist import hoisted, is_looked_up, rebuilt, steps_of

LOOK, CALL = "@look", "@call"


class Stepped:
    """Puts `@look(k)` before step k, and `@call(k, f)` in place of each `f` that a step calls."""

    def __init__(self) -> None:
        self._number = 0

    def block(self, statements: list[ast.stmt]) -> list[ast.stmt]:
        found: list[ast.stmt] = []
        for statement in statements:
            taken, left = hoisted(statement, len(steps_of(statement)), self._number)
            for each in taken:
                assert isinstance(each, ast.Assign)
                if is_looked_up(each.value):
                    found.append(each)
                    continue
                found += [self._look(each), self._watched(each)]
                self._number += 1
            found.append(self._look(statement))
            self._number += 1
            if isinstance(left, ast.If):
                body, orelse = self.block(left.body), self.block(left.orelse)
                left = rebuilt(left, {"body": body, "orelse": orelse})
            found.append(left)
        return found

    def _look(self, near: ast.stmt) -> ast.stmt:
        call = ast.Call(ast.Name(LOOK, ast.Load()), [ast.Constant(self._number)], [])
        made = ast.Expr(call)
        for node in ast.walk(made):
            ast.copy_location(node, near)
        return made

    def _watched(self, assignment: ast.Assign) -> ast.stmt:
        call = assignment.value
        if not isinstance(call, ast.Call):
            return assignment
        number, name = ast.Constant(self._number), ast.Name(CALL, ast.Load())
        watch = ast.Call(name, [number, call.func], [])
        for node in (number, name, watch):
            ast.copy_location(node, call.func)
        made = ast.copy_location(ast.Call(watch, call.args, call.keywords), call)
        return ast.copy_location(ast.Assign(assignment.targets, made), assignment)
