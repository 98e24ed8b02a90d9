"""Makes what recipes say, fast or as Pillow does, and compares the two.

    recipe -> place -> fast; at first, and now and then: both, compared, and the original's is given

Promise: what is given is what Pillow and torchvision give. A place of which one result differed is left
alone from then on.
Owner: the worker's main thread.
"""

import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from stoker.clock import aside
from stoker.fast.place import Place, news_of
from stoker.fast.report import FastWish
from stoker.images.native import AS_BYTES, AS_FLOATS, AS_FLOATS_LAST, AS_PIXELS, Native, Tail
from stoker.images.pillow import Pillow
from stoker.images.recipe import NO_FILTER, Recipe, whole
from stoker.images.sources import Held, Jpeg
from stoker.reports.metrics import FastPlace

_MIRROR, _FLIP = 0, 1  # PIL.Image.Transpose
_FILTERS = {4: "box", 2: "bilinear", 3: "bicubic", 1: "Lanczos"}
_KINDS = {
    AS_PIXELS: "image",
    AS_BYTES: "tensor of bytes",
    AS_FLOATS: "tensor",
    AS_FLOATS_LAST: "tensor, channels last",
}
_CUTS = {
    (True, False): "some columns",
    (False, True): "some rows",
    (True, True): "some columns and rows",
}


class Made(NamedTuple):
    """A tensor of floats that is to be made. room: its memory; kind: AS_FLOATS or AS_FLOATS_LAST; shown: the
    same memory, as the original shows it; is_of_batch: nobody looks at it soon."""

    room: torch.Tensor
    kind: int
    shown: torch.Tensor
    tail: Tail
    is_of_batch: bool


class Maker:
    def __init__(self, native: Native, pillow: Pillow, wish: FastWish) -> None:
        self._native, self._pillow, self._wish = native, pillow, wish
        self._places: dict[tuple[object, ...], Place] = {}
        self._is_busy = False
        self.is_plain = False  # while an original is made: by Pillow and torchvision alone

    def news(self) -> list[FastPlace]:
        """Return what is new since the last call."""
        return news_of(list(self._places.values()))

    def core(self, recipe: Recipe) -> Any:
        """Return a core image of Pillow's."""
        if self.is_plain or (recipe.filter == NO_FILTER and isinstance(recipe.source, Held)):
            return self.original(recipe)  # of pixels these are no more than copies
        return self._made(
            recipe, AS_PIXELS, self._fast_core, lambda: self.original(recipe), _same_core
        )

    def tensor(
        self, recipe: Recipe, original: Callable[[], torch.Tensor], wanted: Made
    ) -> torch.Tensor:
        """Return `original()`, or the same made as wanted."""
        room, kind, shown, tail, streams = wanted

        def fast(recipe: Recipe) -> torch.Tensor | None:
            return shown if self._make(recipe, kind, room.data_ptr(), tail, streams) else None

        return self._made(recipe, kind, fast, original, _same_tensor)  # type: ignore[no-any-return]

    def tensor_of_bytes(
        self, recipe: Recipe, original: Callable[[], torch.Tensor], room: torch.Tensor
    ) -> torch.Tensor:
        """Return `original()`, made in `room`: bytes of height x width x 3."""

        def fast(recipe: Recipe) -> torch.Tensor | None:
            is_made = self._make(recipe, AS_BYTES, room.data_ptr(), None)
            return room.permute(2, 0, 1) if is_made else None

        return self._made(recipe, AS_BYTES, fast, original, _same_tensor)  # type: ignore[no-any-return]

    def original(self, recipe: Recipe) -> Any:
        """Return the core image that Pillow makes, step by step."""
        core = recipe.source.core()
        left, top, width, height = recipe.box
        if recipe.box != (0, 0, *recipe.source.size):
            core = core.crop((left, top, left + width, top + height))
        if recipe.filter != NO_FILTER:
            core = core.resize(recipe.to_size, recipe.filter, (0, 0, width, height))
        left, top, width, height = recipe.want
        if recipe.want != (0, 0, *recipe.to_size):
            core = core.crop((left, top, left + width, top + height))
        if recipe.is_mirrored:
            core = core.transpose(_MIRROR)
        if recipe.is_flipped:
            core = core.transpose(_FLIP)
        return core

    def _made(
        self,
        recipe: Recipe,
        kind: int,
        fast: Callable[[Recipe], Any],
        slow: Callable[[], Any],
        are_same: Callable[[Any, Any], bool],
    ) -> Any:
        place = self._place_of(recipe, kind)
        if place.why:
            return self._slowly(slow)
        must_check = place.must_check()
        made = fast(recipe)
        if made is None:
            place.news.num_refused += 1
            return self._slowly(slow)
        if not must_check:
            return made
        with aside():
            original = self._slowly(slow)
            place.note(are_same(made, original))
        return original

    def _slowly(self, slow: Callable[[], Any]) -> Any:
        """Return what is made without anything of ours: torchvision asks Pillow for an image's pixels."""
        before, self.is_plain = self.is_plain, True
        try:
            return slow()
        finally:
            self.is_plain = before

    def _place_of(self, recipe: Recipe, kind: int) -> Place:
        is_down_first = self._is_vertical_first(recipe)
        turned = recipe.is_mirrored, recipe.is_flipped
        cut = recipe.is_cut
        key = (recipe.source.name, cut, recipe.filter, is_down_first, turned, kind)
        place = self._places.get(key)
        if place is None:
            words = [recipe.source.name] + ([_CUTS[cut]] if any(cut) else [])
            if recipe.filter != NO_FILTER:
                words.append(_FILTERS[recipe.filter] + ", down first" * is_down_first)
            words += ["mirrored"] * recipe.is_mirrored + ["flipped"] * recipe.is_flipped
            name = ", ".join(words) + " -> " + _KINDS[kind]
            place = self._places[key] = Place(name, self._wish)
        return place

    def _is_vertical_first(self, recipe: Recipe) -> bool:
        return self._pillow.is_vertical_first(recipe.box[2:], recipe.to_size)

    def _fast_core(self, recipe: Recipe) -> Any:
        source = recipe.source
        if isinstance(source, Jpeg) and recipe == whole(source, source.size):
            return source.fast_core(self._native, self._pillow)
        core = sys.modules["PIL.Image"].__dict__["core"].new("RGB", recipe.size)
        made = self._make(recipe, AS_PIXELS, self._pillow.rows_of(core), None)
        return core if made else None

    def _make(
        self, recipe: Recipe, kind: int, to: int, tail: Tail | None, streams: bool = False
    ) -> bool:
        if self._is_busy:
            return False  # a signal's handler or a finalizer, in the middle: the memory is one
        self._is_busy = True
        try:
            of = recipe.source.given(self._native, self._pillow)
            if of is None:
                return False
            goes_down_first = self._is_vertical_first(recipe)
            return self._native.make(recipe, of, kind, to, tail, goes_down_first, streams)
        finally:
            self._is_busy = False


def _same_core(a: Any, b: Any) -> bool:
    if (a.mode, a.size) != (b.mode, b.size):
        return False
    image = sys.modules["PIL.Image"].__dict__["Image"]()
    return bool(image._new(a).tobytes() == image._new(b).tobytes())


def _same_tensor(a: torch.Tensor, b: torch.Tensor) -> bool:
    if type(a) is not type(b) or (a.dtype, a.shape, a.device) != (b.dtype, b.shape, b.device):
        return False
    if _order_of(a) != _order_of(b):
        return False
    a, b = a.as_subclass(torch.Tensor), b.as_subclass(torch.Tensor)
    if a.dtype == torch.float32:
        a, b = a.view(torch.int32), b.view(torch.int32)  # -0.0, NaN
    return torch.equal(a, b)


def _order_of(tensor: torch.Tensor) -> list[int]:
    """Return how a tensor lies in memory, but for sides that are of one element."""
    return [stride for stride, side in zip(tensor.stride(), tensor.shape, strict=True) if side > 1]
