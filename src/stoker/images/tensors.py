"""Turns images that wait into tensors in one pass, with torchvision's conversions that follow each other.

A run of steps, as ToTensor and Normalize, or ToImage, ToDtype and Normalize, gives each byte of each channel
a value of its own. The run itself is asked for all of them, of an image that has them all; also for the order in
memory and the class of what it gives.

Promise: the tensor is the one that torchvision makes.
Owner: the worker's main thread.
Source: torchvision/transforms/functional.py `to_tensor`, `pil_to_tensor`; transforms.py and
v2/_container.py `Compose`, 0.28.
"""

import ctypes
import functools
import itertools
import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from stoker.fingerprint.modes import has_modes
from stoker.images.lazy import Laziness
from stoker.images.make import Made, Maker
from stoker.images.native import (
    AS_FLOATS,
    AS_FLOATS_LAST,
    BY_DIVISION,
    BY_PRODUCT,
    BY_TABLE,
    PIXEL_NBYTES,
    Native,
    Rows,
    Tail,
)  # fmt: skip
from stoker.images.recipe import Recipe, whole
from stoker.memory.watch import is_traced
from stoker.stack import passed_over, standing_at

_V1, _V2 = "torchvision.transforms.transforms", "torchvision.transforms.v2"
_TIMM = "timm.data.transforms"
# What begins a run, and what may go on with it: by class, the attributes that its values depend on.
_FIRST: dict[tuple[str, str], tuple[str, ...]] = {
    (_V1, "ToTensor"): (),
    (_V1, "PILToTensor"): (),
    (_V2 + "._type_conversion", "ToImage"): (),
    (_V2 + "._type_conversion", "PILToTensor"): (),
    (_TIMM, "MaybeToTensor"): (),
    (_TIMM, "MaybePILToTensor"): (),
}
_THEN: dict[tuple[str, str], tuple[str, ...]] = {
    (_V1, "Normalize"): ("mean", "std", "inplace"),
    (_V1, "ConvertImageDtype"): ("dtype",),
    (_V2 + "._misc", "Normalize"): ("mean", "std", "inplace"),
    (_V2 + "._misc", "ToDtype"): ("dtype", "scale"),
    (_V2 + "._misc", "ConvertImageDtype"): ("dtype",),
}
_PLAIN = {float, int, bool, torch.dtype}
_NUM_VALUES = 256
_MAX_CONVERSIONS = 64
_CHANNELS = 3
_Step = Callable[[Any], Any]
_Room = Callable[[tuple[int, ...]], torch.Tensor | None]


class _Conversion(NamedTuple):
    """What a run of steps makes. of: the class of its tensors; table: kept for as long as the tail, which
    holds its address."""

    tail: Tail
    is_last: bool
    of: type
    table: torch.Tensor


class Tensors:
    """The hooks: each is given the original function, and a call's arguments. room_for: returns memory for
    floats of a shape where its batch will be, if it is known."""

    def __init__(
        self,
        native: Native,
        laziness: Laziness,
        maker: Maker,
        room_for: _Room,
        is_own: Callable[[], bool],
    ) -> None:
        """is_own: whether all that a run would call is torchvision's own, at this moment."""
        self._native, self._laziness, self._maker = native, laziness, maker
        self._room_for, self._is_own = room_for, is_own
        self._conversions: dict[object, _Conversion | None] = {}

    @passed_over
    def to_tensor(self, original: Any, arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
        if len(arguments) == 1 and not named:
            made = self._converted(arguments[0], (original,), original)
            if made is not None:
                return made
        return original(*arguments, **named)

    @passed_over
    def pil_to_tensor(
        self, original: Any, arguments: tuple[Any, ...], named: dict[str, Any]
    ) -> Any:
        if len(arguments) == 1 and not named and not has_modes():
            recipe = self._recipe_of(arguments[0])
            if recipe is not None:
                width, height = recipe.size
                room = torch.empty((height, width, _CHANNELS), dtype=torch.uint8, device="cpu")
                return self._maker.tensor_of_bytes(recipe, lambda: original(*arguments), room)
        return original(*arguments, **named)

    @passed_over
    def compose(self, original: Any, arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """Take the steps of a `Compose` as it does, but runs of conversions at once."""
        if len(arguments) != 2 or named or is_traced():
            return original(*arguments, **named)
        composed, image = arguments
        steps = composed.transforms
        if type(composed).__module__ not in (_V1, _V2 + "._container") or type(steps) is not list:
            return original(*arguments)
        called = standing_at(original, "transform" if "transform" in _names_of(original) else "t")
        at = 0
        while at < len(steps):
            run = _run_from(steps, at)
            made = self._run(run, image) if len(run) > 1 else None
            image = called(steps[at], image) if made is None else made
            at += 1 if made is None else len(run)
        return image

    def _run(self, steps: Sequence[_Step], image: Any) -> Any:
        return self._converted(image, steps, functools.partial(_through, steps))

    def _converted(self, image: Any, steps: Sequence[_Step], original: _Step) -> Any:
        if torch.get_default_dtype() is not torch.float32 or has_modes():
            return None
        recipe = self._recipe_of(image)
        if recipe is None:
            return None
        conversion = self._conversion_of(steps)
        if conversion is None:
            return None
        width, height = recipe.size
        shape, is_plain = (_CHANNELS, height, width), conversion.of is torch.Tensor
        kind, strides = AS_FLOATS, (height * width, width, 1)
        if conversion.is_last:
            kind, strides = AS_FLOATS_LAST, (1, _CHANNELS * width, _CHANNELS)
        lent = self._room_for(shape) if is_plain and kind == AS_FLOATS else None
        # No view of other memory: what may be done with the original may be done with it.
        room = torch.empty_strided(shape, strides, device="cpu") if lent is None else lent
        shown = room if is_plain else room.as_subclass(conversion.of)
        made = Made(room, kind, shown, conversion.tail, is_of_batch=lent is not None)
        return self._maker.tensor(recipe, lambda: original(image), made)

    def _recipe_of(self, image: Any) -> Recipe | None:
        images = sys.modules["PIL.Image"].__dict__
        if not self._may_convert() or not isinstance(image, images["Image"]):
            return None
        return self._laziness.looked_at(image)

    def _may_convert(self) -> bool:
        return not self._maker.is_plain and self._is_own()

    # -- values ------------------------------------------------------------------------------------

    def _conversion_of(self, steps: Sequence[_Step]) -> _Conversion | None:
        key = tuple(_told_of(step) for step in steps)
        if key not in self._conversions:
            if len(self._conversions) >= _MAX_CONVERSIONS:
                return None  # of a script that makes them anew
            try:
                self._conversions[key] = self._asked(steps)
            except Exception:  # the steps' own: they will raise it again
                self._conversions[key] = None
        return self._conversions[key]

    def _asked(self, steps: Sequence[_Step]) -> _Conversion | None:
        """Have the steps convert all bytes, and see how their values may be computed here."""
        row = bytes(byte for byte in range(_NUM_VALUES) for _ in range(_CHANNELS))
        images = sys.modules["PIL.Image"].__dict__
        given = _through(steps, images["frombytes"]("RGB", (_NUM_VALUES, 2), 2 * row))
        made = given.as_subclass(torch.Tensor)
        if made.dtype is not torch.float32 or made.shape != (_CHANNELS, 2, _NUM_VALUES):
            return None
        if given._is_view() == (
            type(given) is torch.Tensor
        ):  # a subclass's are, of the tensor in it
            return None
        is_last = made.stride() == (1, _CHANNELS * _NUM_VALUES, _CHANNELS)
        if not is_last and not made.is_contiguous():
            return None
        table = made[:, :1].contiguous()
        mean, std = (0.0,) * _CHANNELS, (1.0,) * _CHANNELS
        for step in steps:
            if "mean" in _THEN.get(_class_of(step), ()):
                mean, std = tuple(step.mean), tuple(step.std)  # type: ignore[attr-defined]
        for computes in (BY_DIVISION, BY_PRODUCT, BY_TABLE):
            tail = Tail(table.data_ptr(), computes, mean, std)
            if torch.equal(self._values_by(tail).view(torch.int32), table.view(torch.int32)):
                return _Conversion(tail, is_last, type(given), table)
        return None

    def _values_by(self, tail: Tail) -> torch.Tensor:
        """Return the values of all bytes as the compiled code computes them."""
        made = torch.zeros((_CHANNELS, 1, _NUM_VALUES), device="cpu")
        row = bytearray(byte for byte in range(_NUM_VALUES) for _ in range(PIXEL_NBYTES))
        pixels = (ctypes.c_char * len(row)).from_buffer(row)
        address = ctypes.c_void_p(ctypes.addressof(pixels))
        rows = Rows(ctypes.addressof(address), _NUM_VALUES, 1)
        self._native.make(whole(None, (_NUM_VALUES, 1)), rows, AS_FLOATS, made.data_ptr(), tail)
        return made


def _names_of(function: Any) -> tuple[str, ...]:
    return function.__code__.co_varnames  # type: ignore[no-any-return]


def _through(steps: Sequence[_Step], image: Any) -> Any:
    for step in steps:
        image = step(image)
    return image


def _run_from(steps: Sequence[_Step], at: int) -> Sequence[_Step]:
    """Return the steps from one on that are taken at once; none if it begins no run."""
    if not _is_one_of(steps[at], _FIRST):
        return ()
    rest = itertools.islice(steps, at + 1, None)
    return [steps[at], *itertools.takewhile(lambda step: _is_one_of(step, _THEN), rest)]


def _class_of(step: Any) -> tuple[str, str]:
    return type(step).__module__, type(step).__qualname__


def _is_one_of(step: Any, known: dict[tuple[str, str], tuple[str, ...]]) -> bool:
    names = known.get(_class_of(step))
    if names is None or not _is_plain(step):
        return False
    return all(_is_told(getattr(step, name, None)) for name in names)


def _is_told(value: Any) -> bool:
    """Whether an attribute of a step tells all: a number, a dtype, or a float for each channel."""
    if type(value) in (list, tuple):
        return len(value) == _CHANNELS and all(type(each) is float for each in value)
    return type(value) in _PLAIN


def _told_of(step: Any) -> object:
    """Return what the values that a step gives depend on."""
    kind = _class_of(step)
    values = [getattr(step, name) for name in _THEN.get(kind, ())]
    return type(step), tuple(tuple(v) if type(v) is list else v for v in values)


def _is_plain(step: Any) -> bool:
    """Whether a call of a step calls its class's own code, and nothing else."""
    inside = vars(step)
    hooks = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    everywhere = sys.modules["torch.nn.modules.module"].__dict__
    return (
        not {"forward", "transform", "__call__"} & inside.keys()
        and not any(inside.get(name) for name in hooks)
        and not any(everywhere.get("_global" + name) for name in hooks)
    )
