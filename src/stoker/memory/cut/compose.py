"""Splits what applies one transform after another: a Compose of torchvision's or MONAI's, or
torch.nn.Sequential.

A part is a shallow copy of the callee with some of its transforms, so that the library's own code
calls them: tracebacks, types and arguments are what they would be.

Promise: only for exactly these classes, with their own `__call__` and `forward`, and without hooks;
MONAI's only if it is not lazy: then what is pending is applied before each transform anyway.
Source: torchvision/transforms/transforms.py and v2/_container.py, 0.28; torch/nn/modules/container.py,
2.13; monai/transforms/compose.py and lazy/functional.py, 1.6.
"""

import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

# The attribute that holds the transforms, by module and class.
_MONAI = ("monai.transforms.compose", "Compose")
_HELD = {
    ("torchvision.transforms.transforms", "Compose"): "transforms",
    ("torchvision.transforms.v2._container", "Compose"): "transforms",
    ("torch.nn.modules.container", "Sequential"): "_modules",
    _MONAI: "transforms",
}
_MONAIS_OWN = {
    "transforms", "map_items", "unpack_items", "log_stats", "overrides", "R", "_lazy",
}  # fmt: skip
_HOOKS = (
    "_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks",
)  # fmt: skip
_GLOBAL_HOOKS = ("_global_forward_hooks", "_global_forward_pre_hooks", "_global_backward_hooks")


def length_of(callee: Any) -> int:
    """Return how many transforms a callee applies one after another; 0 if it cannot be split."""
    kind = type(callee)
    name = (kind.__module__, kind.__qualname__)
    held = _HELD.get(name)
    if held is None or any(getattr(callee, name, None) for name in _HOOKS):
        return 0
    modules: Any = sys.modules.get("torch.nn.modules.module")
    if any(getattr(modules, name, None) for name in _GLOBAL_HOOKS):
        return 0
    for each in ("__call__", "forward"):
        own = vars(kind).get(each)
        if own is not None and own.__module__ != kind.__module__:
            return 0  # somebody has replaced it
    if name == _MONAI and not _is_plain_monai(kind, callee):
        return 0
    if "forward" in vars(callee) or not isinstance(vars(callee).get(held), (list, dict, tuple)):
        return 0
    return len(vars(callee)[held])


def _is_plain_monai(kind: type, callee: Any) -> bool:
    """Whether a Compose of MONAI's does nothing but call its transforms in turn: not lazy, of a
    version that is known by what it holds, with the library's own function."""
    apply = sys.modules[kind.__module__].execute_compose
    return (
        set(vars(callee)) <= _MONAIS_OWN
        and vars(callee).get("_lazy") is False
        and not callee.overrides
        and callee.log_stats is False
        and getattr(apply, "__module__", None) == kind.__module__
    )


def transforms_of(callee: Any) -> list[Any]:
    """List the transforms of a callee that can be split."""
    found = vars(callee)[_HELD[type(callee).__module__, type(callee).__qualname__]]
    return list(found.values() if isinstance(found, dict) else found)


def part(callee: Any, start: int, end: int | None) -> Any:
    """Return a copy of the callee with its transforms from `start` to before `end`."""
    held = _HELD[type(callee).__module__, type(callee).__qualname__]
    found = vars(callee)[held]
    if isinstance(found, dict):
        return _like(callee, held, dict(list(found.items())[start:end]))
    return _like(callee, held, found[start:end])


def watched(callee: Any, look: Callable[[int], None]) -> Any:
    """Return a copy that calls `look(k)` before transform k, and once more behind the last."""
    held = _HELD[type(callee).__module__, type(callee).__qualname__]
    found = vars(callee)[held]
    if isinstance(found, dict):
        return _like(callee, held, _WatchedDict(found, look))
    kind = _WatchedTuple if isinstance(found, tuple) else _WatchedList
    return _like(callee, held, kind(found, look))


def _like(callee: Any, held: str, transforms: object) -> Any:
    made = object.__new__(type(callee))
    vars(made).update(vars(callee))
    vars(made)[held] = transforms
    return made


def _looking(items: Iterable[Any], look: Callable[[int], None]) -> Iterator[Any]:
    number = 0
    for number, item in enumerate(items):
        look(number)
        yield item
        number += 1
    look(number)


class _WatchedList(list[Any]):
    def __init__(self, items: list[Any], look: Callable[[int], None]) -> None:
        super().__init__(items)
        self._look = look

    def __iter__(self) -> Iterator[Any]:
        return _looking(super().__iter__(), self._look)


class _WatchedTuple(tuple[Any, ...]):
    """Watched also where all of it is sliced, as MONAI does."""

    _look: Callable[[int], None]

    def __new__(cls, items: tuple[Any, ...], look: Callable[[int], None]) -> "_WatchedTuple":
        made = super().__new__(cls, items)
        made._look = look
        return made

    def __iter__(self) -> Iterator[Any]:
        return _looking(super().__iter__(), self._look)

    def __getitem__(self, at: Any) -> Any:
        found = super().__getitem__(at)
        is_whole = isinstance(at, slice) and len(found) == len(self)
        return _WatchedTuple(found, self._look) if is_whole else found


class _WatchedDict(dict[str, Any]):
    def __init__(self, items: dict[str, Any], look: Callable[[int], None]) -> None:
        super().__init__(items)
        self._look = look

    def values(self) -> Any:
        return _looking(super().values(), self._look)
