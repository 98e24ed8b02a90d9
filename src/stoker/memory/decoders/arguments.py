"""Describes the arguments of a call, so that equal descriptions mean equal calls.

Promise: two values are described alike only if a function cannot tell them apart by value and type.
What is no plain value raises NotPlain. Ban: nothing of the script's is called.
"""

import enum
import pathlib
import sys
from typing import Any

import torch

from stoker.trusted import is_trusted

_PLAIN = (type(None), bool, int, float, complex, str, bytes)
_MAX_NUM = 4096  # elements of a tensor, as which frames of a video; 0.2 ms to describe
_PATHS = (pathlib.PosixPath, pathlib.PurePosixPath)


class NotPlain(Exception):
    """An argument is neither number, text, path, dtype, small tensor nor a tuple, list or dict of these."""


def described(value: Any) -> object:
    """Return what `repr` tells apart. Raises NotPlain."""
    kind = type(value)
    if kind in _PLAIN:
        return kind.__name__, value
    if kind in _PATHS:
        return kind.__name__, str(value)
    if kind is tuple or kind is list:
        return kind.__name__, [described(each) for each in value]
    if kind is dict:
        return "dict", [(described(key), described(value[key])) for key in value]
    if kind is slice:
        return "slice", [described(each) for each in (value.start, value.stop, value.step)]
    if kind is torch.Tensor and value.device.type == "cpu" and value.numel() <= _MAX_NUM:
        return "tensor", str(value.dtype), tuple(value.shape), value.tolist()
    if kind is torch.dtype or kind is torch.device:
        return "torch", str(value)
    if isinstance(value, enum.Enum) and is_trusted(kind.__module__):
        return kind.__module__, kind.__qualname__, value.name, described(value.value)
    if isinstance(value, type) and is_trusted(value.__module__):
        return "type", value.__module__, value.__qualname__
    return _of_numpy(value)


def _of_numpy(value: Any) -> object:
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        if isinstance(value, numpy.dtype) and value.kind in "biufc" and value.metadata is None:
            return "dtype", value.str
        if isinstance(value, numpy.generic) and value.dtype.kind in "biufc":
            return "scalar", value.dtype.str, value.tobytes()
    raise NotPlain(type(value).__qualname__)
