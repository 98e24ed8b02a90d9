"""Keeps elements of few different values as a byte each, and tables of the values.

A normalised photograph has 256 values a channel at most: it takes a quarter of its bytes.

Promise: what `decode` writes is what `encode` read, bit by bit; equal elements give equal bytes.
`palette` is None if palette.c was not built (no compiler): then nothing is encoded.
Ban: no torch. ctypes releases the interpreter lock for each call.
"""

import ctypes
from collections.abc import Iterator, Sequence
from math import prod
from pathlib import Path
from typing import NamedTuple

NUM_VALUES = 256  # of a plane, at most
LINE_NBYTES = 64  # each plane's bytes are a multiple of this
MIN_NBYTES = 16 * 1024  # below this a copy costs next to nothing
MIN_PLANE = 1024  # elements: of fewer the table would be most of what is kept
MAX_FRAC = 0.75  # of the elements' bytes: above this reading gains nothing
_OUTER = 2  # dimensions that may number the planes, as in a video of normalised frames


class Planes(NamedTuple):
    """How elements lie in memory: `num` planes, one behind the other, of `length` elements each."""

    num: int
    length: int
    item_nbytes: int

    @property
    def nbytes(self) -> int:
        return self.num * self.length * self.item_nbytes

    @property
    def coded_nbytes(self) -> int:
        indices_nbytes = -(-self.length // LINE_NBYTES) * LINE_NBYTES
        return self.num * (NUM_VALUES * self.item_nbytes + indices_nbytes)


def planes_of(shape: Sequence[int], item_nbytes: int) -> Iterator[Planes]:
    """Iterate the ways to cut elements into planes that may be worth it, the fewest planes first.

    shape: of the elements as they lie in memory, the outermost dimension first.
    """
    num_elements = prod(shape)
    if item_nbytes not in (2, 4, 8) or num_elements * item_nbytes < MIN_NBYTES:
        return
    before = 0
    for num_outer in range(min(_OUTER, len(shape)) + 1):
        num = prod(shape[:num_outer])
        planes = Planes(num, num_elements // num, item_nbytes)
        if num == before:
            continue
        if planes.length < MIN_PLANE or planes.coded_nbytes > MAX_FRAC * planes.nbytes:
            return
        before = num
        yield planes


class Palette:
    """The compiled functions. Addresses are of memory that the caller holds."""

    def __init__(self, library: ctypes.CDLL) -> None:
        """Raises AttributeError if it is not one of ours."""
        address, size = ctypes.c_void_p, ctypes.c_size_t
        self._check = library.stoker_check
        self._check.argtypes, self._check.restype = (address, size), ctypes.c_uint64
        self._may_fit = library.stoker_palette_may_fit
        self._may_fit.argtypes = (address, size, size, size)
        self._encode = library.stoker_palette_encode
        self._encode.argtypes = (address, address, size, size, size)
        self._decode = library.stoker_palette_decode
        self._decode.argtypes = (address, address, size, size, size, ctypes.c_int)
        self._decode.restype = None

    def check(self, address: int, nbytes: int) -> int:
        """Return 64 bits that tell these bytes from damaged ones."""
        return int(self._check(address, nbytes))

    def encode(self, address: int, planes: Planes) -> bytearray | None:
        """Return what `decode` takes; None if a plane has too many values."""
        if not self._may_fit(address, *planes):
            return None
        coded = bytearray(planes.coded_nbytes)
        to = ctypes.addressof(ctypes.c_char.from_buffer(coded))
        return coded if self._encode(to, address, *planes) else None

    def decode(self, address: int, coded: int, planes: Planes, streams: bool) -> None:
        """Write `planes.nbytes` bytes of what `encode` returned. streams: with stores that leave the
        caches alone; the address is a multiple of item_nbytes."""
        self._decode(address, coded, *planes, streams)


def load(library: Path) -> Palette | None:
    """Return None if there is no such library, or it is not one of ours."""
    try:
        return Palette(ctypes.CDLL(str(library)))
    except (OSError, AttributeError):
        return None


LIBRARY = Path(__file__).with_name("libpalette.so")
palette = load(LIBRARY)
