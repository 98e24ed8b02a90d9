"""Switches fast images on in a worker: puts the hooks in place of Pillow's and torchvision's functions.

Promise: only functions that are Pillow's and torchvision's own are replaced, and only as long as all that they
would have called is too; what a script has put in their place is called as without.
Ban: only in a process of ours.
Owner: the worker's main thread.
"""

import contextlib
import os
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

import torch

from stoker.fast.report import FastWish
from stoker.images.lazy import Laziness, waiting
from stoker.images.make import Maker
from stoker.images.native import PLAIN, native
from stoker.images.pillow import Pillow, pillow
from stoker.images.tensors import Tensors
from stoker.memory.decoders.decoders import wants_pixels_of
from stoker.redirect import is_being_imported, is_of_library, redirect
from stoker.reports.metrics import FastPlace

_IMAGE, _FILE, _JPEG = "PIL.Image", "PIL.ImageFile", "PIL.JpegImagePlugin"
_FUNCTIONAL, _TRANSFORMS = "torchvision.transforms.functional", "torchvision.transforms.transforms"
_V2 = "torchvision.transforms.v2"
# Whose calls are redirected: module, class if any, function, the hook's name.
_PILLOWS = [
    (_IMAGE, "Image", name, name) for name in ("convert", "copy", "crop", "resize", "transpose")
]
_PILLOWS += [(_FILE, "ImageFile", "load", "load")]
_TORCHVISIONS = [
    (_FUNCTIONAL, "", "to_tensor", "to_tensor"),
    (_FUNCTIONAL, "", "pil_to_tensor", "pil_to_tensor"),
    (_TRANSFORMS, "Compose", "__call__", "compose"),
    (_V2 + "._container", "Compose", "forward", "compose"),
]
# What those would have called. Names that a class or module does not have itself are to stay so.
_CALLED_OF_PILLOW = [
    (_IMAGE, "Image", "convert copy crop resize transpose load _new _crop _copy_info tobytes size mode readonly"),
    (_IMAGE, "", "_decompression_bomb_check"),
    (_FILE, "ImageFile", "load load_prepare load_end"),
    (_JPEG, "JpegImageFile", "load load_read load_prepare load_end convert copy crop resize transpose"),
]  # fmt: skip
_CALLED_OF_TORCHVISION = [
    ("torch.nn.modules.module", "Module", "__call__ _call_impl _wrapped_call_impl"),
    (_FUNCTIONAL, "", "to_tensor pil_to_tensor normalize convert_image_dtype"),
    ("torchvision.transforms._functional_tensor", "", "normalize convert_image_dtype"),
    (_TRANSFORMS, "ToTensor", "__call__"),
    (_TRANSFORMS, "PILToTensor", "__call__"),
    (_TRANSFORMS, "Normalize", "forward __call__"),
    (_TRANSFORMS, "ConvertImageDtype", "forward __call__"),
    (_V2 + "._transform", "Transform", "forward __call__ _call_kernel _needs_transform_list"),
    (_V2 + "._type_conversion", "ToImage", "forward transform __call__"),
    (_V2 + "._type_conversion", "PILToTensor", "forward transform __call__"),
    (_V2 + "._misc", "Normalize", "forward transform check_inputs __call__"),
    (_V2 + "._misc", "ToDtype", "forward transform __call__"),
    (_V2 + "._misc", "ConvertImageDtype", "forward transform __call__"),
    ("timm.data.transforms", "MaybeToTensor", "__call__"),
    ("timm.data.transforms", "MaybePILToTensor", "__call__"),
    (_V2 + ".functional", "", "to_image pil_to_tensor normalize to_dtype"),
    (_V2 + ".functional._misc", "", "normalize normalize_image to_dtype to_dtype_image"),
    (_V2 + ".functional._type_conversion", "", "to_image pil_to_tensor"),
]
NUM_BLOCKS = 4  # of Pillow's memory, of 16 MB each at most, that a worker keeps for the next image
_Called = tuple[str, str, str]
Room = Callable[[tuple[int, ...], torch.dtype], torch.Tensor | None]


class _Watched:
    """What a library's functions call: whether that is the library's own still. replaced: the name of what the
    script had replaced already when it was met first; empty if there is none."""

    def __init__(self, called: list[_Called]) -> None:
        self._called = called
        self._num_modules = 0
        # Ways to ask modules and classes for their attributes, and what that gave first.
        self._gets: list[tuple[Callable[[str], Any], str]] = []
        self._found: list[Any] = []
        self.replaced = ""
        self._is_whole = False

    def is_own(self) -> bool:
        if len(sys.modules) != self._num_modules:
            self.take_in()
        return (
            self._is_whole
            and not self.replaced
            and [get(name) for get, name in self._gets] == self._found
        )

    def take_in(self) -> None:
        """Look at what has been imported since the last call."""
        there = [each for each in self._called if each[0] in sys.modules]
        self._is_whole = not any(is_being_imported(sys.modules[module]) for module, *_ in there)
        if not self._is_whole:
            return  # this thread or another is importing it: its functions come yet
        self._num_modules = len(sys.modules)
        self._called = [each for each in self._called if each not in there]
        for module, owner, names in there:
            inside = vars(sys.modules[module])
            gets = [(inside.get, owner)] if owner else []
            get = vars(inside[owner]).get if owner else inside.get
            gets += [(get, name) for name in names.split()]
            found = [get(name) for get, name in gets]
            if not all(
                is_of_library(module, value) for value in found if not isinstance(value, type)
            ):
                self.replaced = f"{module}.{owner}".rstrip(".")
            self._gets += gets
            self._found += found


class FastImages:
    """A worker's fast images. why: they are off; empty if they are on, or nothing was seen yet."""

    def __init__(self, room: Room, wish: FastWish) -> None:
        """room: returns memory for a sample's tensor, where its batch will be, if it is known."""
        self.why = ""
        self._room, self._wish = room, wish
        self._is_why_told = False
        self._maker: Maker | None = None
        self._laziness: Laziness | None = None
        self._tensors: Tensors | None = None
        self._num_modules = 0
        self._redirected: set[tuple[str, ...]] = set()
        self._pillow, self._torchvision = (
            _Watched(_CALLED_OF_PILLOW),
            _Watched(_CALLED_OF_TORCHVISION),
        )

    def news(self) -> list[FastPlace]:
        """Return what is new since the last call."""
        places = [] if self._maker is None else self._maker.news()
        if self.why and not self._is_why_told:
            self._is_why_told = True
            places.append(FastPlace("images", why=self.why))
        return places

    def look(self) -> None:
        """Take in what was imported or replaced since the last look."""
        if self.why:
            return
        try:
            if len(sys.modules) != self._num_modules:
                self._num_modules = len(sys.modules)
                self._take_in()
        except Exception as error:
            self._leave(f"stoker failed: {type(error).__name__}: {error}")

    def _take_in(self) -> None:
        if self._laziness is None and _IMAGE in sys.modules:
            import_module(
                _FILE
            )  # or Pillow does, when the first batch opens a file: that would be made without
            self._begin()
        laziness = self._laziness
        if laziness is None:
            return
        self._pillow.take_in()
        if self._pillow.replaced:
            self._leave(f"the script has replaced some of {self._pillow.replaced}")
            return
        self._redirect(_PILLOWS, laziness)
        if _FUNCTIONAL in sys.modules and _TRANSFORMS in sys.modules:
            if self._tensors is None:
                assert native is not None and self._maker is not None
                self._tensors = Tensors(
                    native, laziness, self._maker, self._room_for, self._torchvision.is_own
                )
            self._redirect(_TORCHVISIONS, self._tensors)

    def _begin(self) -> None:
        found: Any = pillow()
        if native is None:
            self._leave("stoker was installed without a C compiler")
        elif native.simd == PLAIN:
            self._leave("this processor has neither AVX2 nor NEON")
        elif not isinstance(found, Pillow):
            self._leave(found)
        else:
            inside = vars(sys.modules[_IMAGE])
            self._maker = Maker(native, found, self._wish)
            self._laziness = Laziness(native, self._maker, self._pillow.is_own, wants_pixels_of)
            _keep_blocks(inside["core"])
            image = inside["Image"]
            image.im = waiting(vars(image)["im"], self._laziness)

    def _redirect(self, functions: list[tuple[str, str, str, str]], hooks: object) -> None:
        for each in functions:
            module, owner, name, hook = each
            if each in self._redirected or module not in sys.modules:
                continue
            self._redirected.add(each)
            held_in: Any = sys.modules[module]
            held_in = getattr(held_in, owner) if owner else held_in
            if is_of_library(module, vars(held_in).get(name)):
                redirect(held_in, name, getattr(hooks, hook))

    def _leave(self, why: str) -> None:
        self.why = why
        if self._laziness is not None:
            self._laziness.is_on = False

    def _room_for(self, shape: tuple[int, ...]) -> torch.Tensor | None:
        with contextlib.suppress(Exception):  # ours
            return self._room(shape, torch.float32)
        return None


def _keep_blocks(core: Any) -> None:
    """Have Pillow use the memory of an image again for the next one, if nobody has said how much of it. Source:
    Pillow's documentation, reference/block_allocator."""
    if core.get_blocks_max() == 0 and "PILLOW_BLOCKS_MAX" not in os.environ:
        core.set_blocks_max(NUM_BLOCKS)
