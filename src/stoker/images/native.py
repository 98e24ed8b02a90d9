"""Loads the compiled functions that decode, resample and turn into tensors (native/).

Promise: bytes are those that Pillow and torch give. `native` is None if they were not built (no
compiler), or this processor has neither AVX2 nor NEON, without which nothing is gained.
Owner: one caller at a time, for the scratch memory is one (make.py sees to that). ctypes releases the interpreter lock for each call.
Ban: no torch, no Pillow.
"""

import ctypes
from pathlib import Path
from typing import NamedTuple

from stoker.images.recipe import NO_FILTER, Recipe

PIXEL_NBYTES = 4
AS_PIXELS, AS_BYTES, AS_FLOATS, AS_FLOATS_LAST = range(4)
PLAIN, AVX2, AVX512, NEON = range(4)  # what a processor can
BY_TABLE, BY_DIVISION, BY_PRODUCT = range(3)
FILTERS = {4: 0, 2: 1, 3: 2, 1: 3}  # PIL.Image.Resampling: BOX, BILINEAR, BICUBIC, LANCZOS
_ANY = 1  # filter of what is not resampled
# Of scratch memory: what a huge image took is given back at the next one.
_MAX_KEPT_NBYTES = 64 << 20
LIBJPEG_FUNCTIONS = (
    "std_error", "CreateDecompress", "read_header", "start_decompress", "read_scanlines",
    "crop_scanline", "skip_scanlines", "finish_decompress", "destroy_decompress", "resync_to_restart",
)  # fmt: skip

_int, _address, _size = ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t


class _Job(ctypes.Structure):  # native/resample.h
    _fields_ = [
        ("rows", _address),
        *((name, _int) for name in ("rows_width", "rows_height")),
        *((name, _address) for name in ("pull", "from")),
        *((name, _int) for name in ("left", "top", "width", "height")),
        *((name, _int) for name in ("to_width", "to_height", "want_x", "want_y")),
        *((name, _int) for name in ("want_width", "want_height", "filter")),
        *((name, _int) for name in ("is_vertical_first", "simd")),
    ]


class _Output(ctypes.Structure):  # native/image.c
    _fields_ = [
        *((name, _int) for name in ("kind", "is_mirrored", "is_flipped")),
        *((name, _address) for name in ("rows", "values", "table")),
        ("computes", _int),
        ("mean", ctypes.c_float * 3),
        ("std", ctypes.c_float * 3),
        ("streams", _int),
    ]


class Shape(NamedTuple):
    """Of a JPEG file. num_components: 1 or 3; nbytes: up to the end of the image; sampling: of its first
    component, across in the upper four bits, down in the lower."""

    width: int
    height: int
    num_components: int
    nbytes: int
    sampling: int


class Rows(NamedTuple):
    """Pixels of 4 bytes, in rows. address: of the addresses of the rows."""

    address: int
    width: int
    height: int


class JpegFile(NamedTuple):
    """What decodes a file, and the file. libjpeg: the address of the addresses of LIBJPEG_FUNCTIONS."""

    libjpeg: int
    content: bytes
    shape: Shape


class Tail(NamedTuple):
    """How bytes become floats. table: the address of 3 x 256 floats; computes: BY_DIVISION or
    BY_PRODUCT with these means and deviations where that gives the same floats, else BY_TABLE."""

    table: int
    computes: int
    mean: tuple[float, ...]
    std: tuple[float, ...]


class Native:
    """The compiled functions. Addresses are of memory that the caller holds."""

    def __init__(self, library: ctypes.CDLL) -> None:
        """Raises AttributeError if it is not one of ours."""
        self._make = library.stoker_image_make
        self._make.argtypes = (_address, _address, _address)
        self._make_of_jpeg = library.stoker_image_make_of_jpeg
        self._make_of_jpeg.argtypes = (
            _address, ctypes.c_char_p, _size, _address, _address, _address, _address
        )  # fmt: skip
        self._scratch_nbytes = library.stoker_image_scratch_nbytes
        self._scratch_nbytes.argtypes, self._scratch_nbytes.restype = (_address, _int), _size
        self._is_sound = library.stoker_jpeg_is_sound
        self._is_sound.argtypes = (ctypes.c_char_p, _size, _address)
        self._decode = library.stoker_jpeg_decode
        self._decode.argtypes = (_address, ctypes.c_char_p, _size, _address, _address)
        self._sine = ctypes.CDLL("libm.so.6").sin
        library.stoker_image_use_sine(ctypes.cast(self._sine, _address))
        self.simd = int(library.stoker_image_simd_here())
        self._scratch = ctypes.create_string_buffer(0)

    def shape_of(self, file: bytes) -> "Shape | None":
        """Return the shape of a JPEG file of which no decoding can fail; None if that is not certain."""
        shape = (_int * len(Shape._fields))()
        return Shape(*shape) if self._is_sound(file, len(file), shape) else None

    def decode(self, file: JpegFile, rows: int) -> bool:
        """Decode all of a JPEG file. rows: the address of the addresses of the rows, of 4-byte
        pixels. Returns False if Pillow is to do it: then the rows hold anything."""
        shape = (_int * len(file.shape))(*file.shape)
        content = file.content
        return bool(self._decode(file.libjpeg, content, len(content), shape, rows) == 0)

    def make(
        self,
        recipe: Recipe,
        of: Rows | JpegFile,
        kind: int,
        to: int,
        tail: Tail | None = None,
        is_vertical_first: bool = False,
        streams: bool = False,
    ) -> bool:
        """Make what a recipe says. of: what its source is; to: the address of the values, or of the
        addresses of rows AS_PIXELS. Returns False if it is Pillow's to make: then they hold anything."""
        filter_ = _ANY if recipe.filter == NO_FILTER else FILTERS[recipe.filter]
        of_file = isinstance(of, JpegFile)
        rows = Rows(0, of.shape.width, of.shape.height) if isinstance(of, JpegFile) else of
        job = _Job(
            rows.address, rows.width, rows.height, None, None,
            *recipe.box, *recipe.to_size, *recipe.want, filter_, is_vertical_first, self.simd,
        )  # fmt: skip
        told = ctypes.byref(job)
        nbytes = self._scratch_nbytes(told, of_file)
        if not nbytes:
            return False
        scratch = self._scratch = _room(self._scratch, nbytes)
        output = _Output(kind, recipe.is_mirrored, recipe.is_flipped, streams=streams)
        if kind == AS_PIXELS:
            output.rows = to
        else:
            output.values = to
        if tail is not None:
            output.table, output.computes = tail.table, tail.computes
            output.mean[:], output.std[:] = tail.mean, tail.std
        made = told, ctypes.byref(output), scratch
        if not isinstance(of, JpegFile):
            return bool(self._make(*made) == 0)
        shape, content = (_int * len(of.shape))(*of.shape), of.content
        return bool(self._make_of_jpeg(of.libjpeg, content, len(content), shape, *made) == 0)


def _room(memory: "ctypes.Array[ctypes.c_char]", nbytes: int) -> "ctypes.Array[ctypes.c_char]":
    is_kept = nbytes <= len(memory) and (
        len(memory) <= _MAX_KEPT_NBYTES or nbytes > _MAX_KEPT_NBYTES
    )
    return memory if is_kept else ctypes.create_string_buffer(nbytes + nbytes // 4)


def load(library: Path) -> Native | None:
    """Return None if there is no such library, or it is not one of ours."""
    try:
        return Native(ctypes.CDLL(str(library)))
    except (OSError, AttributeError):
        return None


LIBRARY = Path(__file__).with_name("libimages.so")
native = load(LIBRARY)
