"""Loads the compiled copy with streaming stores, which does not read what it overwrites.

Promise: `stream_copy` puts exactly the bytes that memcpy would, or is None if stream_copy.c was not
built (no compiler, or not x86-64); then everything is copied as without it.
Ban: no torch. ctypes releases the interpreter lock for the call, as torch's own copies do.
"""

import ctypes
import os
from collections.abc import Callable, Sequence
from pathlib import Path

StreamCopy = Callable[[int, Sequence[int], int], None]

# A batch for which this pays: smaller ones, with those in flight beside them, fit a last-level
# cache, and the trainer finds there what ordinary stores have left.
# Measured: docs/decisions/006-streaming-stores.md
STREAM_NBYTES = 8 << 20


def load(library: Path) -> StreamCopy | None:
    """Return a function (destination, sources, nbytes): addresses, and the bytes at each source.

    The pieces go one after the other to the destination, which overlaps none of them. Returns None
    if there is no such library, or it is not one of ours.
    """
    try:
        function = ctypes.CDLL(str(library)).stoker_stream_copy
    except (OSError, AttributeError):
        return None
    function.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t)
    function.restype = None

    def stream_copy(destination: int, sources: Sequence[int], nbytes: int) -> None:
        num = len(sources)
        function(destination, (ctypes.c_void_p * num)(*sources), num, nbytes)

    return stream_copy


# "lib": Python would take a stream_copy.so for this module.
LIBRARY = Path(__file__).with_name("libstream_copy.so")
stream_copy = load(LIBRARY)
# To be told where it matters; empty where it is there, or could not be.
WHY_NONE = (
    "large batches are copied more slowly: stoker was installed without a C compiler"
    if stream_copy is None and os.uname().machine == "x86_64"
    else ""
)
