"""Tells where Pillow keeps an image's pixels, and which libjpeg it has loaded.

Both are looked at, not assumed: of an image with known pixels the rows are found where they are
expected, or this Pillow is left alone.
Source: Pillow, src/libImaging/Imaging.h, `struct ImagingMemoryInstance`.
"""

import ctypes
import functools
import sys
from typing import Any

from stoker.images.native import LIBJPEG_FUNCTIONS, PIXEL_NBYTES

# Whose images were found equal (tests/process/test_pillow_versions.py): the first two numbers of a version,
# and whether its resampling goes down before across where that is less work.
KNOWN = {
    **dict.fromkeys([(11, 0), (11, 1), (11, 2), (11, 3)], False),
    **dict.fromkeys([(12, 0), (12, 1), (12, 2), (12, 3)], False),
    (13, 0): True,
}

_pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
_pointer_of.restype, _pointer_of.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
_name_of = ctypes.pythonapi.PyCapsule_GetName
_name_of.restype, _name_of.argtypes = ctypes.c_char_p, (ctypes.py_object,)
_POINTER_NBYTES = ctypes.sizeof(ctypes.c_void_p)
_LOOKED_AT_NBYTES = 96  # of the struct: the rows' addresses are among its first fields


def _address_of(core: Any) -> int:
    """Return where the struct of a core image is."""
    capsule = core.ptr
    return int(_pointer_of(capsule, _name_of(capsule)))


class Pillow:
    """What is known of the Pillow that is loaded. libjpeg: see native.py; 0 if there is none."""

    def __init__(self, rows_at: int, goes_down_first: bool, libjpeg: Any) -> None:
        self._rows_at = rows_at
        self._goes_down_first = goes_down_first
        self._libjpeg = libjpeg
        self.libjpeg = 0 if libjpeg is None else ctypes.addressof(libjpeg)

    def rows_of(self, core: Any) -> int:
        """Return the address of the addresses of an RGB image's rows."""
        return int(ctypes.c_void_p.from_address(_address_of(core) + self._rows_at).value or 0)

    def is_vertical_first(self, size: tuple[int, int], to_size: tuple[int, int]) -> bool:
        """Whether a resampling goes down before across. Source: Resample.c; fitted on outputs."""
        (width, height), (to_width, to_height) = size, to_size
        return (
            self._goes_down_first
            and height > to_height
            and height - to_height > 2 * (width - to_width)
        )


@functools.cache
def pillow() -> Pillow | str:
    """Return what is known of the Pillow that is loaded, or why it is left alone."""
    module = sys.modules.get("PIL.Image")
    version = str(getattr(module, "__version__", ""))
    numbers = tuple(int(n) for n in version.split(".")[:2] if n.isdecimal())
    if numbers not in KNOWN:
        return f"Pillow {version} is not one that was compared"
    try:
        core = module.__dict__["core"]
        rows_at = _rows_at(core)
    except Exception as error:
        return f"Pillow {version} keeps its images otherwise ({type(error).__name__})"
    if rows_at is None:
        return f"Pillow {version} keeps its images otherwise"
    return Pillow(rows_at, KNOWN[numbers], _libjpeg(core.__file__))


def _rows_at(core: Any) -> int | None:
    """Return where in its struct an image's rows are found, by an image of known pixels."""
    width, height = 5, 3
    pixels = bytes(range(PIXEL_NBYTES * width * height))
    image = core.new("RGB", (width, height))
    drawn = core.map_buffer(bytearray(pixels), (width, height), "raw", 0, ("RGB", 0, 1)).copy()
    sides = (ctypes.c_int * 2)(width, height)
    for each in image, drawn:
        begin = ctypes.string_at(_address_of(each), _LOOKED_AT_NBYTES)
        at = begin.find(bytes(sides))
        if at < 0 or at % 4:
            return None
    # Behind the sides, aligned: the palette, rows of bytes, rows of pixels.
    palette_at = -(-(at + len(bytes(sides))) // _POINTER_NBYTES) * _POINTER_NBYTES
    rows_at = palette_at + 2 * _POINTER_NBYTES
    for y in range(height):
        rows = ctypes.c_void_p.from_address(_address_of(drawn) + rows_at).value
        if not rows:
            return None
        row = ctypes.c_void_p.from_address(rows + y * _POINTER_NBYTES).value
        nbytes = PIXEL_NBYTES * width
        if not row or ctypes.string_at(row, nbytes) != pixels[y * nbytes :][:nbytes]:
            return None
    return rows_at


def _libjpeg(imaging: str) -> Any:
    """Return the addresses of LIBJPEG_FUNCTIONS in the libjpeg of Pillow's compiled part; None if
    they are not found: then JPEG files are Pillow's to decode."""
    try:
        library = ctypes.CDLL(imaging)  # loaded already; names are sought in what it needs too
        found = [getattr(library, "jpeg_" + name) for name in LIBJPEG_FUNCTIONS]
    except (OSError, AttributeError):
        return None
    addresses = (ctypes.c_void_p * len(found))()
    addresses[:] = [ctypes.cast(each, ctypes.c_void_p).value for each in found]
    return addresses
