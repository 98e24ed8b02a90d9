"""Tells a value's bytes from damaged ones.

Promise: a flipped bit anywhere, two pages that changed places, and a page of zeros each give another
checksum. It is as fast as memory is read, and leaves the value in the caches for its reader.
"""

import ctypes

import torch

from stoker.wire.palette import palette

_BLOCK_WORDS = 512  # of 8 bytes: a page


def checksum(address: int, nbytes: int) -> int:
    """Return 32 bits. Compiled (wire/palette.c), or with torch where that was not built: not the same."""
    total = _sum(address, nbytes) if palette is None else palette.check(address, nbytes)
    return (total ^ total >> 32) & 0xFFFFFFFF


def _sum(address: int, nbytes: int) -> int:
    """Add up words. Pages count by where they lie, times an odd number each: one with an even number
    would lose bits."""
    num_blocks = nbytes // (8 * _BLOCK_WORDS)
    whole_nbytes = num_blocks * 8 * _BLOCK_WORDS
    total = nbytes
    if num_blocks:
        memory = (ctypes.c_char * whole_nbytes).from_address(address)
        words = torch.frombuffer(memory, dtype=torch.int64).view(num_blocks, _BLOCK_WORDS)
        odd = torch.arange(1, 2 * num_blocks + 1, 2, device="cpu")
        total += int((words.sum(1) * odd).sum())
    if whole_nbytes != nbytes:
        rest = ctypes.string_at(address + whole_nbytes, nbytes - whole_nbytes)
        padded = bytearray(rest + bytes(-len(rest) % 8))
        total += int(torch.frombuffer(padded, dtype=torch.int64).sum())
    return total
