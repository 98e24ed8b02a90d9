"""Tells a value's bytes from damaged ones.

Promise: a flipped bit anywhere, two pages that changed places, and a page of zeros each give another
checksum. Compiled, it is as fast as memory is read, and leaves the value in the caches for its reader.
"""

import ctypes
import zlib

from stoker.wire.palette import palette


def checksum(address: int, nbytes: int) -> int:
    """Return 32 bits. Compiled (wire/palette.c), or zlib's where that was not built: not the same."""
    if palette is None:
        return zlib.crc32((ctypes.c_char * nbytes).from_address(address))
    total = palette.check(address, nbytes)
    return (total ^ total >> 32) & 0xFFFFFFFF
