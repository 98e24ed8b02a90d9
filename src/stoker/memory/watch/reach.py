"""Finds what the prefix of a sample can reach, and computes a fingerprint of that.

The prefix of a `__getitem__` reads some attributes of its dataset and some globals, calls some of
its methods, and applies the first transforms of a Compose. The rest may move as it likes, as the
random transforms of MONAI and Albumentations do, which write to themselves.

Promise: what the prefix can read by name is in its reach; where that cannot be told (the dataset
itself is passed on) its reach is the whole dataset.
"""

import ast
import hashlib
import os
import types
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch

from stoker.clock import Deadline, thread_cpu_s
from stoker.fingerprint.fingerprint import Apart, fingerprint
from stoker.fingerprint.modes import modes
from stoker.memory.cut import FRONT, Halves
from stoker.memory.watch.lasting import foundations, lasting


def reach_of(dataset: Any, halves: Halves | None, transforms: list[Any]) -> dict[str, object]:
    """Return what the prefix can reach, by name. halves: None where it is the whole sample.

    transforms: the first ones of a Compose, which the prefix applies.
    """
    found: dict[str, object] = {"type": type(dataset), "transforms": transforms}
    if halves is None:
        return found | {"dataset": dataset}
    used = _used_of(halves.prefix_node)
    if used is None or _computes_attributes(type(dataset)):
        return found | {"dataset": dataset}
    found["code"] = halves.prefix_code
    for name in sorted(_with_methods(dataset, used)):
        of_class = _of_class(type(dataset), name)
        if name in vars(dataset) and not hasattr(type(of_class), "__set__"):
            found[name] = vars(dataset)[name]
        elif not isinstance(of_class, types.FunctionType):
            return found | {"dataset": dataset}  # a property, or another descriptor
    for name in _compared(halves.prefix_node):
        found[f"{name} is None"] = getattr(dataset, name, None) is None
    return found


class State(NamedTuple):
    """16 bytes that change when a reach does, generators left out, or what surrounds it.

    now: environment, folder, settings of libraries; lasting: the same in another run, where machine
    and libraries are the same and what differs is of its session alone.
    """

    now: bytes
    lasting: bytes


UNKNOWN = State(b"", b"")


def state_of(reach: dict[str, object], apart: Apart, allowed_s: float) -> State:
    """apart: is given the generators in reach. Raises Unwatchable, also if it takes too long."""
    reached = fingerprint(reach, Deadline(allowed_s, thread_cpu_s), apart=apart)
    around = repr((os.getcwd(), modes(), torch.get_num_threads()))  # noqa: PTH109
    variables = dict(os.environ)
    return State(
        _digest(reached, around, variables),
        _digest(reached + foundations(), around, lasting(variables)),
    )


def _digest(reached: bytes, around: str, variables: dict[str, str]) -> bytes:
    told = reached + f"{around} {sorted(variables.items())}".encode(errors="surrogateescape")
    return hashlib.blake2b(told, digest_size=16).digest()


def _used_of(prefix: ast.FunctionDef) -> set[str] | None:
    """Return the attributes of the dataset that the prefix reads; None if it passes on itself."""
    me = prefix.args.args[0].arg
    skipped = {id(node) for node in _not_read(prefix)}
    own = [node for node in ast.walk(prefix) if _is_of(node, me)]
    owners = {id(node.value) for node in own if isinstance(node, ast.Attribute)}
    for node in ast.walk(prefix):
        if isinstance(node, ast.Name) and node.id == me and id(node) not in owners:
            return None
        if _calls(node, "super"):
            return None
    return {
        node.attr for node in own if isinstance(node, ast.Attribute) and id(node) not in skipped
    }


def _is_of(node: ast.AST, name: str) -> bool:
    """Whether a node is an attribute of a name."""
    value = node.value if isinstance(node, ast.Attribute) else None
    return isinstance(value, ast.Name) and value.id == name


def _calls(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name


def _not_read(prefix: ast.FunctionDef) -> Iterator[ast.expr]:
    """Iterate expressions of which the prefix reads less than all: those that are compared with
    None, and the Compose of which it applies the first transforms."""
    for node in ast.walk(prefix):
        if isinstance(node, ast.Compare) and _is_about_none(node):
            yield node.left
        if isinstance(node, ast.Call) and _calls(node, FRONT):
            yield node.args[0]


def _is_about_none(node: ast.Compare) -> bool:
    last = node.comparators[0]
    is_none = isinstance(last, ast.Constant) and last.value is None
    return len(node.ops) == 1 and isinstance(node.ops[0], (ast.Is, ast.IsNot)) and is_none


def _compared(prefix: ast.FunctionDef) -> list[str]:
    """List the attributes of the dataset of which the prefix does not read all."""
    me = prefix.args.args[0].arg
    return sorted(
        node.attr
        for node in _not_read(prefix)
        if isinstance(node, ast.Attribute) and _is_of(node, me)
    )


def _with_methods(dataset: Any, names: set[str]) -> set[str]:
    """Add the attributes that the dataset's own methods among `names` may read."""
    found: set[str] = set()
    left = list(names)
    while left:
        name = left.pop()
        if name in found:
            continue
        found.add(name)
        method = _of_class(type(dataset), name)
        if isinstance(method, types.FunctionType) and name not in vars(dataset):
            left += [each for each in _names_in(method.__code__) if _has(dataset, each)]
    return found


def _names_in(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names_in(constant)


def _has(dataset: Any, name: str) -> bool:
    return name in vars(dataset) or _of_class(type(dataset), name) is not None


def _of_class(kind: type, name: str) -> object:
    """Return what a class and its bases hold under a name, as it lies there."""
    return next((vars(base)[name] for base in kind.__mro__[:-1] if name in vars(base)), None)


def _computes_attributes(kind: type) -> bool:
    """Whether a class decides itself what its attributes are; or has none in a dict."""
    own = _of_class(kind, "__getattribute__") or _of_class(kind, "__getattr__")
    return own is not None or not hasattr(kind, "__dictoffset__") or kind.__dictoffset__ == 0
