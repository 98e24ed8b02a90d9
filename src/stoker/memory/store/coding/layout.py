"""What a value's bytes look like: a head, a description of numbers and text, and buffers.

    bytes of the description, number of buffers | description | buffers, each of whole 64 bytes

Ban: nothing of the user's is pickled or run.
"""

import ctypes
import io
import pathlib
import pickle
import struct
from typing import Any

import torch

HEAD = struct.Struct("<II")  # bytes of the description, number of buffers
ALIGN_NBYTES = 64
PLAIN = (type(None), bool, int, float, complex, str, bytes)
KEYS = (str, int, bool)  # of a dict
PATHS = (pathlib.PosixPath, pathlib.PurePosixPath)
DTYPES = {
    str(dtype): dtype
    for dtype in (
        torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.bfloat16,
        torch.float16, torch.float32, torch.float64, torch.complex64, torch.complex128,
    )
}  # fmt: skip
IMAGE_BITS = {
    "1": 1, "L": 8, "LA": 16, "RGB": 24, "RGBA": 32, "RGBX": 32, "CMYK": 32, "YCbCr": 24, "HSV": 24,
    "I": 32, "F": 32, "I;16": 16,
}  # fmt: skip  # a pixel, by mode
MAX_DEPTH = 16  # of containers in each other
IMMUTABLE = (*PLAIN, *PATHS)


class NotStorable(Exception):
    """A value cannot be kept; says why."""


def dumps(described: object) -> bytes:
    """Pickle numbers, text and containers of them, so that the bytes depend on values alone."""
    file = io.BytesIO()
    pickler = pickle.Pickler(file, protocol=4)
    pickler.fast = True  # no memo: it would tell which objects are the same
    pickler.dump(described)
    return file.getvalue()


class _Plain(pickle.Unpickler):
    """Makes what `dumps` takes, and calls nothing: a value may come from a file."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("builtins", "complex"):
            return complex
        raise pickle.UnpicklingError(f"{module}.{name} in a value")


def loads(data: memoryview) -> Any:
    return _Plain(io.BytesIO(data)).load()


def address_of(memory: memoryview) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(memory))


def memory_at(address: int, nbytes: int, held: Any) -> memoryview:
    """View memory, and hold whose it is."""
    if not nbytes:
        return memoryview(b"")
    memory: Any = (ctypes.c_ubyte * nbytes).from_address(address)
    memory.held = held
    return memoryview(memory).cast("B")
