"""What a function has returned, as it is kept, and anew from what was kept.

The store keeps numbers; of an array it does not keep whose memory it shows. A script can tell: an
array that does not own its memory cannot be resized, and has a base. So that is noted here.

Promise: a value comes back with its arrays' bases as they were, or raises NotStorable.
"""

import functools
import sys
from typing import Any

import torch

from stoker.memory.store import NotStorable, is_alone

_OWN, _BYTES, _FLAT, _SAME = "", "bytes", "flat", "same"  # bases


def payload_of(holder: list[Any]) -> Any:
    """Return what to keep of holder[0], which nothing else may hold. Raises NotStorable."""
    if not is_alone(holder, 0):
        raise NotStorable("is held elsewhere too")
    if type(holder[0]) is tuple:
        return True, [pack(each) for each in holder[0]]
    return False, [pack(holder[0])]


def value_of(payload: Any) -> Any:
    """Return a value of memory of its own, of what is still the shelf's."""
    is_tuple, items = payload
    values = [unpack(*each) for each in items]
    return tuple(values) if is_tuple else values[0]


def pack(value: Any) -> tuple[Any, str]:
    """Return a value, and the kind of base that it has if it is an array that does not own its memory.
    Raises NotStorable."""
    numpy = sys.modules.get("numpy")
    if isinstance(value, torch.Tensor) and type(value) is not torch.Tensor:
        raise NotStorable("is a tensor of a class of its own")  # which `unpack` does not copy
    if numpy is None or type(value) is not numpy.ndarray:
        _refuse_memory(value)
        return value, _OWN
    is_alone_with_base = _num_holders(value) == _num_of_one_holder()
    base = value.base
    if numpy.empty_like(value).strides != value.strides:
        raise NotStorable("is an array in an order of its own")
    if base is None:
        return value, _OWN
    if value.nbytes and is_alone_with_base:
        if type(base) is bytearray and len(base) == value.nbytes:
            return value, _BYTES
        is_array = type(base) is numpy.ndarray and base.base is None
        if is_array and base.dtype == value.dtype and base.size == value.size:
            if base.ndim == 1:
                return value, _FLAT
            if base.strides == value.strides:
                return value, _SAME
    raise NotStorable("is an array that shows another's memory")


def _refuse_memory(value: Any) -> None:
    """Raise NotStorable if there are arrays or tensors inside a container."""
    numpy = sys.modules.get("numpy")
    inner = list(value.values()) if type(value) is dict else value
    if type(inner) is list or type(inner) is tuple:
        for each in inner:
            if isinstance(each, torch.Tensor) or (numpy and isinstance(each, numpy.ndarray)):
                raise NotStorable("has arrays or tensors inside containers")
            _refuse_memory(each)


def unpack(value: Any, base: str) -> Any:
    """Return what `pack` was given, in memory of its own."""
    if type(value) is torch.Tensor:
        return value.clone()
    numpy = sys.modules.get("numpy")
    if numpy is None or type(value) is not numpy.ndarray:
        return value
    if base in (_OWN, _SAME):
        own = numpy.empty_like(value)
        made = own if base == _OWN else own.view()
    else:
        memory = bytearray(value.nbytes) if base == _BYTES else numpy.empty(value.size, value.dtype)
        made = numpy.ndarray(value.shape, value.dtype, memory, 0, value.strides)
    made[...] = value
    return made


def _num_holders(array: Any) -> int:
    return sys.getrefcount(array.base)


@functools.cache
def _num_of_one_holder() -> int:
    """Return the count of references to a base that nothing but its array holds."""
    numpy: Any = sys.modules["numpy"]
    array = numpy.ndarray((2,), "u1", bytearray(2))
    return _num_holders(array)
