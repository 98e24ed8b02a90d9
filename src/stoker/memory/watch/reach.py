"""Finds what the prefix of a sample can reach, and computes a fingerprint of that.

The prefix of a `__getitem__` reads some attributes of its dataset and some globals, calls some of
its methods, and applies the first steps of a function or the first transforms of a Compose. The rest
may move as it likes, as the random transforms of MONAI and Albumentations do, which write to
themselves.

Promise: what the prefix can read by name is in its reach; where that cannot be told (the dataset
itself is passed on, super() is called, be it by a method) its reach is the whole dataset.
"""

import hashlib
import os
import sys
import types
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from stoker.clock import Deadline, thread_cpu_s
from stoker.fingerprint.fingerprint import Apart, fingerprint
from stoker.fingerprint.modes import surroundings
from stoker.fingerprint.names import attributes_of, names_in
from stoker.memory.cut import UNKNOWN, Level, computes_attributes, of_class
from stoker.memory.watch.lasting import codecs, foundations, lasting_of
from stoker.trusted import is_trusted, put_in

_NUM_SEARCHED = 10_000  # objects, for transforms that write their address into the data
_NUM_SURFACE = 64  # attributes of one object that are looked at before each sample
_NUM_ITEMS, _HOLDING = 8, {list, tuple, dict}  # items of those among them that have no more


_Part = tuple[dict[str, Any], list[str] | None]  # what holds attributes, and which ones; None: all


class Reach(NamedTuple):
    """What a prefix can reach. values: by name; surface: objects of which it reads attributes, and
    which ones; None: all."""

    values: dict[str, object]
    surface: list[_Part]

    def surface_now(self) -> list[object]:
        """Return the attributes as they are now."""
        found: list[object] = []
        for held, names in self.surface:
            if names is None:
                found += list(held.values())[:_NUM_SURFACE]
            else:
                found += [held.get(name) for name in names]
        held_there: list[Any] = [each for each in found if type(each) in _HOLDING]
        for each in held_there:
            if len(each) <= _NUM_ITEMS:
                found += each.values() if type(each) is dict else each
        return found


def reach_of(dataset: Any, levels: Sequence[Level], transforms: list[Any]) -> Reach:
    """Return what the prefix can reach. levels: the functions that are cut, none where it is the
    whole sample; transforms: the first ones of a Compose, which the prefix applies."""
    found: dict[str, object] = {"type": type(dataset), "transforms": transforms}
    surface: list[_Part] = []
    if not levels:
        found["dataset"] = dataset
        surface.append((getattr(dataset, "__dict__", {}), None))
        surface += _globals_of(_methods(dataset, {"__getitem__"}))
    for number, level in enumerate(levels):
        prefix: Any = level.halves.prefix_code
        methods: list[types.FunctionType] = []
        values = {"type": type(level.owner), "code": level.halves.prefix_code}
        if level.owner is not UNKNOWN:
            read = _read_of(level)
            values |= {"all": level.owner} if read is None else read
            held = getattr(level.owner, "__dict__", {})
            surface.append((held, None if read is None else _own_names(read, held)))
            named = set(names_in(level.halves.prefix_code.__code__)) if read is None else set(read)
            methods = _methods(level.owner, named)
        surface += _globals_of([prefix, *methods])
        found |= {f"level {number}: {name}": value for name, value in values.items()}
    found["addresses"] = _addresses(list(found.values()))
    return Reach(found, surface)


def _addresses(roots: list[Any]) -> list[int]:
    """Return the addresses of MONAI's transforms among what can be reached: they write them into the
    data, by which their inverses know them. Long containers and other libraries' objects are not
    looked into."""
    inverse: Any = sys.modules.get("monai.transforms.inverse")
    if inverse is None:
        return []
    found: list[int] = []
    seen: set[int] = set()
    left = list(roots)
    while left and len(seen) < _NUM_SEARCHED:
        each = left.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        if isinstance(each, inverse.TraceableTransform):
            found.append(id(each))
        if isinstance(each, dict) and len(each) <= _NUM_SURFACE:
            left += each.values()
        elif isinstance(each, (list, tuple)) and len(each) <= _NUM_SURFACE:
            left += each
        elif not isinstance(each, (type, types.ModuleType, types.FunctionType)):
            left += getattr(each, "__dict__", {}).values()
    return sorted(found)


def _globals_of(functions: Sequence[types.FunctionType]) -> list[_Part]:
    """Return the globals that functions name, those that the script's own functions among them name,
    and the attributes of its modules; no more than look at quickly."""
    found: list[_Part] = []
    seen: set[types.CodeType] = set()
    left = list(functions)
    num_left = _NUM_SURFACE
    while left and num_left > 0:
        function = left.pop(0)
        if function.__code__ in seen:
            continue
        seen.add(function.__code__)
        named = set(names_in(function.__code__))
        for held in (function.__globals__, *_modules(function.__globals__, named)):
            names = sorted(name for name in named if name in held)[:num_left]
            num_left -= len(names)
            found.append((held, names))
            values = (held[name] for name in names)
            left += [each for each in values if type(each) is types.FunctionType and _is_own(each)]
    return found


def _modules(held: dict[str, Any], named: set[str]) -> Iterator[dict[str, Any]]:
    """Iterate what the script's own modules hold, of those that are named."""
    for name in sorted(named):
        value = held.get(name)
        if type(value) is types.ModuleType and not is_trusted(value.__name__):
            yield vars(value)


def _is_own(function: types.FunctionType) -> bool:
    return not is_trusted(function.__module__ or "")


def _methods(owner: Any, names: set[str]) -> list[types.FunctionType]:
    """Return the owner's methods among `names`, and those that they name."""
    named = names if (more := _with_methods(owner, names)) is None else more
    methods = (of_class(type(owner), name) for name in sorted(named))
    return [each for each in methods if type(each) is types.FunctionType]


def _own_names(read: dict[str, object], held: dict[str, Any]) -> list[str] | None:
    """Return which attributes are read; None for all, as a method among them may read any."""
    if any(type(value) is types.MethodType for value in read.values()):
        return None
    return [name for name in read if name in held]


def _read_of(level: Level) -> dict[str, object] | None:
    """Return what a prefix reads of what its function is bound to; None if that may be all: what the
    prefix, or a method that it calls, uses otherwise than by its attributes."""
    owner, me = level.owner, level.halves.first
    if me is None or computes_attributes(type(owner)):
        return None
    used = attributes_of(level.halves.without_tests, me)
    if used is None:
        return None
    found: dict[str, object] = {}
    for name, value in _tests(owner, level.halves.tested):
        if value is UNKNOWN:
            used.add(name)
        else:
            found[f"test of {name}"] = value
    names = _with_methods(owner, used)
    for name in sorted(names or ()):
        held = of_class(type(owner), name)
        if name in vars(owner) and not hasattr(type(held), "__set__"):
            found[name] = vars(owner)[name]
        elif not isinstance(held, types.FunctionType):
            return None  # a property, or another descriptor
    return None if names is None else found


class State(NamedTuple):
    """16 bytes that change when a reach does, generators left out, or what surrounds it.

    now: environment, folder, settings of libraries; lasting: the same in another run, where machine
    and libraries are the same and what differs is of its session alone.
    """

    now: bytes
    lasting: bytes


NO_STATE = State(b"", b"")


def state_of(reach: dict[str, object], apart: Apart, allowed_s: float, lasts: bool) -> State:
    """apart: is given the generators in reach; lasts: another run may ask for it, else `lasting` is
    empty. Raises Unwatchable, also if it takes too long."""
    reached = fingerprint(
        {**reach, "put in": put_in()}, Deadline(allowed_s, thread_cpu_s), apart=apart
    )
    around = surroundings()
    variables = dict(os.environ)
    now = _digest(reached, around, variables)
    if not lasts:
        return State(now, b"")
    return State(now, _digest(reached + foundations() + codecs(), around, lasting_of(variables)))


def _digest(reached: bytes, around: str, variables: dict[str, str]) -> bytes:
    told = reached + f"{around} {sorted(variables.items())}".encode(errors="surrogateescape")
    return hashlib.blake2b(told, digest_size=16).digest()


def _tests(owner: Any, tested: Iterable[str]) -> Iterator[tuple[str, object]]:
    """Iterate what tests of attributes may tell, by name: of what is no None, and no object whose
    class says when it is true, that it is there; UNKNOWN of all else: then it is to be read."""
    for name in sorted(tested):
        held = of_class(type(owner), name)
        value = vars(owner).get(name, UNKNOWN if held is not None else None)
        if hasattr(type(held), "__set__") or value is UNKNOWN:
            yield name, UNKNOWN
        elif value is None:
            yield name, name in vars(owner)
        else:
            has_say = hasattr(type(value), "__bool__") or hasattr(type(value), "__len__")
            yield name, UNKNOWN if has_say else True


def _with_methods(owner: Any, names: set[str]) -> set[str] | None:
    """Add the attributes that the owner's own methods among `names` may read; None if one of them
    uses the owner otherwise, as by super() or by passing it on."""
    found: set[str] = set()
    left = list(names)
    while left:
        name = left.pop()
        if name in found:
            continue
        found.add(name)
        method = of_class(type(owner), name)
        if isinstance(method, types.FunctionType) and name not in getattr(owner, "__dict__", {}):
            code = method.__code__
            used = attributes_of(method, code.co_varnames[0]) if code.co_argcount else None
            if used is None:
                return None
            left += used
    return found
