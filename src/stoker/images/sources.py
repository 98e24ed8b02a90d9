"""Where the pixels of a recipe come from: a JPEG file that is not decoded yet, or pixels of Pillow's.

Promise: a source does not change: whoever writes to an image's pixels writes to a copy.
"""

import io
import math
import sys
import weakref
from typing import Any

from stoker.images.native import PIXEL_NBYTES, JpegFile, Native, Rows, Shape
from stoker.images.pillow import Pillow
from stoker.images.recipe import Size

_SAMPLINGS = {0x11: "4:4:4", 0x21: "4:2:2", 0x22: "4:2:0", 0x12: "4:4:0"}


_MAX_NOTED = 32


class _Source:
    """waiting: images that were made to wait for it. Some of them may be gone, or have their pixels."""

    def __init__(self) -> None:
        self.waiting: list[weakref.ref[Any]] = []

    def note(self, seen: "weakref.ref[Any]") -> None:
        if len(self.waiting) >= _MAX_NOTED:
            self.waiting = [each for each in self.waiting if each() is not None]
        self.waiting.append(seen)


class Jpeg(_Source):
    """A whole file, in which no error can be found any more. arguments: of Pillow's decoder;
    block_nbytes: that it is given at once."""

    def __init__(
        self, file: bytes, shape: Shape, arguments: tuple[Any, ...], block_nbytes: int
    ) -> None:
        super().__init__()
        self._file, self._shape = file, shape
        self._arguments, self._block_nbytes = arguments, block_nbytes
        self._held: Held | None = None
        self._num_asked = 0

    @property
    def name(self) -> str:
        sampling = self._shape.sampling
        return f"JPEG file {_SAMPLINGS.get(sampling, hex(sampling))}"

    @property
    def size(self) -> Size:
        return self._shape.width, self._shape.height

    @property
    def nbytes(self) -> int:
        """What it may keep: its pixels too, once it was asked for often."""
        return len(self._file) + PIXEL_NBYTES * math.prod(self.size)

    def given(self, native: Native, pillow: Pillow) -> Rows | JpegFile | None:
        """Return what `Native.make` is given; None if Pillow is to decode."""
        self._num_asked += 1
        if self._wants_all:
            self._held = self._held or Held(self.fast_core(native, pillow) or self._decoded())
            return self._held.given(native, pillow)
        return self._file_of(pillow)

    def fast_core(self, native: Native, pillow: Pillow) -> Any:
        """Return what `core` does; None if Pillow is to decode."""
        if self._held is not None:
            return self._held.core()
        file = self._file_of(pillow)
        if file is None:
            return None
        core = sys.modules["PIL.Image"].__dict__["core"].new("RGB", self.size)
        return core if native.decode(file, pillow.rows_of(core)) else None

    def _file_of(self, pillow: Pillow) -> JpegFile | None:
        return JpegFile(pillow.libjpeg, self._file, self._shape) if pillow.libjpeg else None

    def core(self) -> Any:
        """Return a core image of all, which is the caller's."""
        self._num_asked += 1
        if self._held is None and self._wants_all:
            self._held = Held(self._decoded())
        return self._decoded() if self._held is None else self._held.core()

    @property
    def _wants_all(self) -> bool:
        """Who asks a third time will ask for more: then all is decoded, and kept. (A result that is
        compared takes two.)"""
        return self._num_asked > 2

    def _decoded(self) -> Any:
        """Decode as `ImageFile.load` does."""
        module = sys.modules["PIL.Image"].__dict__
        core = module["core"].new("RGB", self.size)
        decoder = module["_getdecoder"]("RGB", "jpeg", self._arguments, ())
        try:
            decoder.setimage(core, (0, 0, *self.size))
            file, left, error = io.BytesIO(self._file), b"", -1
            while block := file.read(self._block_nbytes):
                left += block
                num_read, error = decoder.decode(left)
                if num_read < 0:
                    break
                left = left[num_read:]
        finally:
            decoder.cleanup()
        if error < 0:  # none of a sound file is known; a late one is better than none
            raise sys.modules["PIL.ImageFile"].__dict__["_get_oserror"](error, encoder=False)
        return core


class Held(_Source):
    """Pixels of an image of Pillow's, which nothing else holds."""

    name = "image"

    def __init__(self, core: Any) -> None:
        super().__init__()
        self._core = core

    @property
    def size(self) -> Size:
        return self._core.size  # type: ignore[no-any-return]

    @property
    def nbytes(self) -> int:
        return PIXEL_NBYTES * math.prod(self.size)

    def given(self, native: Native, pillow: Pillow) -> Rows:
        return Rows(pillow.rows_of(self._core), *self.size)

    def core(self) -> Any:
        return self._core.copy()
