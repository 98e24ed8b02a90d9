"""Lets Pillow's images wait: what is asked of them is written down, and made when somebody looks.

    open.convert, crop, resize, transpose -> a recipe in place of the image's pixels
    image.im, whoever asks -> the pixels, made now

Only what cannot fail waits: a JPEG file in which nothing can be wrong any more, read when it would have been
read; a crop inside, a resampling by a known filter. All else is Pillow's own.

Promise: image, file and errors are what they are without, at the same call. Images that wait keep no more than
MAX_WAITING_NBYTES of what they will be made of.
Owner: the worker's main thread; calls of other threads are Pillow's own.
Source: PIL/Image.py `crop`, `resize`, `transpose`, `convert`, `copy`; PIL/ImageFile.py `load`, Pillow 13.
"""

import contextlib
import io
import math
import os
import sys
import threading
import weakref
from collections import Counter
from collections.abc import Callable
from typing import Any

from stoker.images.make import Maker
from stoker.images.native import FILTERS, Native
from stoker.images.recipe import MAX_PIXELS, NO_FILTER, Recipe, whole
from stoker.images.sources import Held, Jpeg
from stoker.memory.watch import is_traced
from stoker.redirect import LOCAL
from stoker.stack import passed_over, standing_at

_BICUBIC = 3  # Pillow's default
# Of whose classes it is known that a step does no more than `Image`'s own.
_KNOWN_MODULES = {"PIL.Image", "PIL.JpegImagePlugin", "PIL.PngImagePlugin"}
_EOI_NBYTES = 2  # the marker that ends a JPEG file
# Zeros before it: of a file that was filled up, of which Pillow need not read all.
_FILL_NBYTES = 64
_MAX_NBYTES = 64 << 20  # of a file: what is larger holds something else too
_LARGE_PART = 4  # of an image that has its pixels: of a smaller part a copy is cheap
# Times that an image may be higher than wide: others are resampled in another order by some versions of
# Pillow. Source: PIL/Image.py `resize`, 12.2.
_MAX_SLENDER = 100
MAX_WAITING_NBYTES = 64 << 20  # of files and pixels that images which wait will be made of
# By PIL.Image.Transpose.
_TURNS: dict[Any, Callable[[Recipe], Recipe]] = {0: Recipe.mirrored, 1: Recipe.flipped}
_Original = Callable[..., Any]
_Arguments = tuple[Any, ...]


class Lazy:
    """In an image's `_im`, in place of a core image of mode RGB. own: that core image, if there was one: the
    recipe is then all of it; was_looked_at: a tensor was made of it."""

    __slots__ = ("own", "recipe", "was_looked_at")
    mode = "RGB"
    readonly = 0

    def __init__(self, recipe: Recipe, own: Any = None) -> None:
        self.recipe, self.own = recipe, own
        self.was_looked_at = False

    @property
    def size(self) -> tuple[int, int]:
        return self.recipe.size


class Laziness:
    """The hooks: each is given the original function, and a call's arguments."""

    def __init__(
        self,
        native: Native,
        maker: Maker,
        is_own: Callable[[], bool],
        is_wanted: Callable[[Any], bool],
    ) -> None:
        """is_own: whether all that a step would call is Pillow's own, at this moment; is_wanted: whether the
        pixels of an opened file are remembered, or to be: then it does not wait."""
        self._native, self._maker = native, maker
        self._is_own, self._is_wanted = is_own, is_wanted
        self._thread = threading.get_ident()
        self._lock = threading.RLock()  # guards what an image holds: threads may share one
        self._waiting: list[weakref.ref[Any]] = []
        self._noted_nbytes = 0  # what they keep at most
        os.register_at_fork(after_in_child=self._end)
        self._images = sys.modules["PIL.Image"].__dict__
        self._files = sys.modules["PIL.ImageFile"].__dict__
        self._image_class = self._images["Image"]
        self._transpose_class = self._images["Transpose"]
        self._core_class = type(self._images["core"].new("RGB", (1, 1)))
        # Files that a load has let go of. Python warns of one that nobody has closed when its last holder lets
        # go of it: that is to be where it would be without us.
        self._let_go: list[Any] = []
        self.is_on = True

    # -- what is asked of an image -----------------------------------------------------------------

    @passed_over
    def convert(self, original: _Original, arguments: _Arguments, named: dict[str, Any]) -> Any:
        if len(arguments) == 2 and not named and arguments[1] == "RGB":
            return self._asked(original, arguments, named, lambda recipe: recipe, False)
        return original(*arguments, **named)

    @passed_over
    def copy(self, original: _Original, arguments: _Arguments, named: dict[str, Any]) -> Any:
        if len(arguments) == 1 and not named:
            return self._asked(original, arguments, named, lambda recipe: recipe, False)
        return original(*arguments, **named)

    @passed_over
    def crop(self, original: _Original, arguments: _Arguments, named: dict[str, Any]) -> Any:
        box = arguments[1] if len(arguments) == 2 and not named else None
        if type(box) is not tuple or [type(side) for side in box] != 4 * [int]:
            return original(*arguments, **named)
        left, top, right, bottom = box
        width, height = right - left, bottom - top
        most = self._images["MAX_IMAGE_PIXELS"]
        if width < 1 or height < 1 or (most is not None and width * height > most):
            return original(*arguments)  # which has something to say
        crop = lambda recipe: recipe.cropped(left, top, width, height)  # noqa: E731
        takes = _LARGE_PART * width * height >= math.prod(arguments[0].size)
        return self._asked(original, arguments, named, crop, takes)

    @passed_over
    def resize(self, original: _Original, arguments: _Arguments, named: dict[str, Any]) -> Any:
        size, of = (*arguments[1:3], None, None)[:2] if len(arguments) <= 3 else (None, None)
        if named.keys() == {"resample"} and len(arguments) == 2:
            of = named["resample"]
        elif named:
            return original(*arguments, **named)
        of = _BICUBIC if of is None else of
        is_size = type(size) in (tuple, list) and [type(side) for side in size] == [int, int]
        width, height = getattr(arguments[0], "size", (0, 0))
        is_size = is_size and height <= _MAX_SLENDER * width
        if not is_size or not isinstance(of, int) or of not in FILTERS:
            return original(*arguments, **named)
        resize = lambda recipe: recipe.resized(*size, int(of))  # noqa: E731
        return self._asked(original, arguments, named, resize)

    @passed_over
    def transpose(self, original: _Original, arguments: _Arguments, named: dict[str, Any]) -> Any:
        turn = arguments[1] if len(arguments) == 2 and not named else None
        if type(turn) not in (int, self._transpose_class) or turn not in _TURNS:
            return original(*arguments, **named)
        return self._asked(original, arguments, named, _TURNS[turn], False)

    @passed_over
    def _asked(
        self,
        original: _Original,
        arguments: _Arguments,
        named: dict[str, Any],
        step: Callable[[Recipe], Recipe | None],
        takes: bool = True,
    ) -> Any:
        """Return the image that a step gives, one that waits if it can. takes: also of pixels that are
        there already, for which the step is worth it."""
        image = arguments[0]
        recipe = self.recipe_of(image, takes)
        if self._let_go:  # whose load a method of Pillow's calls in its line `self.load()`
            standing_at(original, "load")(self._let_go.clear)
        then = None if recipe is None else step(recipe)
        if recipe is not None and then is None and recipe.filter != NO_FILTER:  # so far, then
            self.pixels_of(image)
            recipe = self.recipe_of(image)
            then = None if recipe is None else step(recipe)
        if then is None:
            return original(*arguments, **named)
        made = image._new(Lazy(then))
        self._note(made, then)
        return made

    # -- what an image is --------------------------------------------------------------------------

    def recipe_of(self, image: Any, takes: bool = True) -> Recipe | None:
        """Return the recipe of an image of mode RGB; None if it is not to wait."""
        inside = getattr(image, "__dict__", None)
        if inside is None or type(image).__module__ not in _KNOWN_MODULES:
            return None
        held = inside.get("_im")
        if (not takes and type(held) is self._core_class) or not self._may_wait():
            return None
        if type(image) is not self._image_class and held is not None and inside.get("tile") != []:
            return None
        if type(held) is Lazy:
            return held.recipe
        if held is None:
            return None if self._is_wanted(image) else self._deferred(image)
        if type(held) is not self._core_class or held.mode != "RGB":
            return None
        with self._lock:
            if _num_holders_of(inside) != _ALONE + 1 or image.readonly:
                return None  # somebody may write to it
            recipe = whole(Held(held), held.size)
            image._im = Lazy(recipe, own=held)
        return recipe

    def _may_wait(self) -> bool:
        return (
            self.is_on
            and not self._maker.is_plain
            and threading.get_ident() == self._thread
            and not is_traced()
            and self._is_own()
        )

    def _note(self, image: Any, recipe: Recipe) -> None:
        """Note that an image waits."""
        seen = weakref.ref(image)
        recipe.source.note(seen)
        self._waiting.append(seen)
        self._noted_nbytes += recipe.source.nbytes
        if self._noted_nbytes > MAX_WAITING_NBYTES:
            self._settle()

    def _settle(self) -> None:
        """Give those images that have waited longest their pixels, if too much is kept for all that wait."""
        found = [(image, _source_of(image)) for image in (seen() for seen in self._waiting)]
        waiting = [(image, source) for image, source in found if source is not None]
        num = Counter(id(source) for _, source in waiting)
        nbytes = sum({id(source): source.nbytes for _, source in waiting}.values())
        num_settled = 0
        if nbytes > MAX_WAITING_NBYTES:
            for image, source in waiting:
                if nbytes <= MAX_WAITING_NBYTES // 2:  # so that the next ones have room
                    break
                self.pixels_of(image)
                num_settled += 1
                num[id(source)] -= 1
                nbytes -= 0 if num[id(source)] else source.nbytes
        self._waiting = [weakref.ref(image) for image, _ in waiting[num_settled:]]
        self._noted_nbytes = nbytes

    @passed_over
    def load(self, original: _Original, arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """Decode a JPEG file at once."""
        image = arguments[0]
        if getattr(image, "_im", image) is None and self._may_wait() and self._deferred(image):
            named[LOCAL] = self._let_go.pop()
            return self._image_class.load(image)
        file = getattr(image, "fp", None)
        loaded = original(*arguments, **named)
        named[LOCAL] = file  # with our frame it would end in a line of ours
        return loaded

    def _deferred(self, image: Any) -> Recipe | None:
        """Do what `load` does with a JPEG file, but for the decoding. Returns None if nothing was
        done."""
        plugin = sys.modules.get("PIL.JpegImagePlugin")
        if plugin is None or type(image) is not plugin.__dict__.get("JpegImageFile"):
            return None
        inside = vars(image)
        file = image.fp
        if (
            "load" in inside
            or "progressive" in image.info  # not sound; not read twice, then
            or math.prod(image.size) > MAX_PIXELS  # there may be no memory for it: to be said now
            or image.mode != "RGB"
            or image.decoderconfig != ()
            or len(image.tile) != 1
            or tuple(image.tile[0]) != ("jpeg", (0, 0, *image.size), 0, ("RGB", ""))
            or self._files["LOAD_TRUNCATED_IMAGES"]
            or not (type(file) is io.BytesIO or type(file) is io.BufferedReader)
            or file.closed
        ):
            return None
        before = file.tell()
        content = b""
        with contextlib.suppress(OSError):  # Pillow will meet it too
            if file.seek(0, os.SEEK_END) <= _MAX_NBYTES:
                file.seek(0)
                content = file.read()
        shape = self._native.shape_of(content)
        block_nbytes = image.decodermaxblock
        # Pillow reads blocks until it has all pixels: the file is left where it leaves it.
        if (
            shape is None
            or (shape.width, shape.height) != image.size
            or shape.num_components != 3
            or (shape.nbytes - _EOI_NBYTES - 1) // block_nbytes
            != (len(content) - 1) // block_nbytes
            or content[shape.nbytes - _EOI_NBYTES - _FILL_NBYTES :].startswith(bytes(_FILL_NBYTES))
        ):
            file.seek(before)
            return None
        image.map = None
        image.tile = []
        image.readonly = 0
        if image._exclusive_fp and image._close_exclusive_fp_after_loading:
            file.close()
        image.fp = None
        self._let_go.append(file)
        recipe = whole(Jpeg(content, shape, ("RGB", ""), block_nbytes), image.size)
        image._im = Lazy(recipe)
        self._note(image, recipe)
        return recipe

    def looked_at(self, image: Any) -> Recipe | None:
        """Return the recipe of an image of which a tensor is to be made. The second time the image
        itself gets its pixels: it is kept, and its file need not be."""
        recipe = self.recipe_of(image)
        if self._let_go:
            standing_at(self._image_class.tobytes, "load")(self._let_go.clear)
        held = getattr(image, "_im", None)
        if recipe is None or type(held) is not Lazy:  # another thread has looked
            return None
        if held.was_looked_at and held.own is None:
            self.pixels_of(image)
            return self.recipe_of(image)
        held.was_looked_at = True
        return recipe

    def pixels_of(self, image: Any) -> None:
        """Make the pixels of an image that has waited."""
        with self._lock:
            held = image._im
            if type(held) is not Lazy:
                return  # another thread has
            if held.own is None:
                image._im = self._maker.core(held.recipe)
                return
            # Whoever looks may write there: what waits for these pixels gets them before. Of images
            # that share one __dict__ each holds what the others do.
            source = held.recipe.source
            for seen in source.waiting:
                other = seen()
                if getattr(other, "_im", held) is not held and _source_of(other) is source:
                    self.pixels_of(other)
            image._im = held.own

    def _end(self) -> None:
        """Let nothing wait any more, in a process that a dataset has forked."""
        self.is_on, self._thread, self._lock = False, 0, threading.RLock()


def _source_of(image: Any) -> Any:
    """Return what an image will be made of; None if it does not wait."""
    held = getattr(image, "_im", None)
    return held.recipe.source if type(held) is Lazy else None


def _num_holders_of(inside: dict[str, Any]) -> int:
    held = inside["_im"]
    return sys.getrefcount(held)


_ALONE = _num_holders_of({"_im": object()})  # as this Python counts


def waiting(original: property, laziness: Laziness) -> property:
    """Return Pillow's property `im`, but an image that waits gets its pixels first."""
    get: Any = original.fget

    def im(image: Any) -> Any:
        pixels = get(image)
        while (
            type(pixels) is Lazy
        ):  # again, if the worker's thread has begun to resize it meanwhile
            laziness.pixels_of(image)
            pixels = get(image)
        return pixels

    return property(im, original.fset, original.fdel, original.__doc__)
