"""Finds whose memory a tensor or an array shows, as far as a script can see it.

Promise: nothing else holds or shows that memory, and not much of it is shown by nobody; where that is not
sure, NotStorable is raised.
"""

import functools
import sys
from typing import Any

import torch

from stoker.memory.store.coding.layout import NotStorable

_MAX_MORE = (
    2  # times the bytes of a view that all of its memory may take: a crop, not a row of a table
)


def whole_of_tensor(value: torch.Tensor) -> torch.Tensor:
    """Return the tensor that one is a view of, or itself: a plain one, and all of its storage.
    Raises NotStorable. value: of torch's own class."""
    storage, base = value.untyped_storage(), value._base
    whole = value if base is None else base
    if whole.storage_offset() or storage.nbytes() != whole.nbytes or storage.is_shared():
        raise NotStorable("a tensor that shows a part of its memory, or what is shared")
    if base is None:
        return whole
    is_plain = type(base) is torch.Tensor and base.dtype is value.dtype and not base.__dict__
    if not is_plain or base.requires_grad or base.nbytes > _MAX_MORE * value.nbytes:
        raise NotStorable("a view of another tensor")
    if sys.getrefcount(base) != _num_holders_of_base() + 1:
        raise NotStorable("a view of a tensor that is held elsewhere too")
    return whole


def whole_of_array(value: Any) -> Any:
    """Return the array that one shows, or itself; it owns its memory, or shows a bytearray that nothing
    else shows. Raises NotStorable."""
    numpy: Any = sys.modules["numpy"]
    base = value.base
    if base is not None and sys.getrefcount(base) != _num_holders_of([object()]):
        raise NotStorable("an array that shows what is held elsewhere too")
    if type(base) is bytearray and len(base) == value.nbytes:
        return value
    whole = value if base is None else base
    is_plain = type(whole) is numpy.ndarray and whole.dtype == value.dtype and whole.flags.owndata
    if not is_plain or not whole.flags.writeable or whole.nbytes > _MAX_MORE * value.nbytes:
        raise NotStorable("an array that shows another's memory")
    if empty(whole.shape, whole.dtype, whole.strides).strides != whole.strides:
        raise NotStorable("an array in an order of its own")
    return whole


def tensor_shown(value: Any) -> torch.Tensor | None:
    """Return the tensor of which `numpy()` has made an array, of whose memory there is no other view.
    Raises NotStorable."""
    base = value.base
    if not isinstance(base, torch.Tensor):
        return None
    count = getattr(torch._C, "_storage_Use_Count", None)
    is_plain = type(base) is torch.Tensor
    is_all = is_plain and base.numpy().__array_interface__ == value.__array_interface__
    if not is_all or count is None or _num_holders_of_storage(base) != _num_holders_of_shown():
        raise NotStorable("an array that shows a tensor which is held elsewhere too")
    return base


def is_field_of_record(value: Any) -> bool:
    """Whether an array shows a field of a record, as of a file's header, and not more: what lies in others
    is no part of it. It comes back as a view of its own memory."""
    numpy: Any = sys.modules["numpy"]
    base = value.base
    if type(base) is not numpy.ndarray or base.dtype.names is None or base.shape:
        return False
    return bool(base.flags.owndata) and value.nbytes < base.nbytes


class Record:
    """A record, and how many arrays are known to show a field of it."""

    def __init__(self, record: Any) -> None:
        self._held, self.num_fields = [record], 0

    @property
    def is_held_elsewhere(self) -> bool:
        return _num_holders_of(self._held) != self.num_fields + _num_holders_of([object()])


def empty(shape: Any, dtype: Any, strides: Any) -> Any:
    """Return an array that owns its memory, in which the dimensions lie in the order of the strides."""
    numpy: Any = sys.modules["numpy"]
    order = sorted(range(len(shape)), key=lambda k: (-strides[k], -shape[k]))
    made = numpy.empty([shape[k] for k in order], dtype)
    if order == list(range(len(shape))):
        return made
    return numpy.empty_like(made.transpose(sorted(order, key=order.__getitem__)))


def address_of_array(array: Any) -> int:
    return array.__array_interface__["data"][0]  # type: ignore[no-any-return]


def order_of(shape: Any, strides: Any) -> tuple[int, ...] | None:
    """Return the order of dimensions in which the memory is dense; () if it is their own.

    None if there are gaps, or a value is seen twice. strides: in elements.
    """
    if 0 in shape:
        return ()
    order = sorted(range(len(shape)), key=lambda k: (-strides[k], k))
    expected = 1
    for k in reversed(order):
        if shape[k] == 1:
            continue
        if strides[k] != expected:
            return None
        expected *= shape[k]
    return () if order == list(range(len(shape))) else tuple(order)


def _num_holders_of(holder: list[object]) -> int:
    held = holder[0]
    return sys.getrefcount(held)


@functools.cache
def _num_holders_of_base() -> int:
    view = torch.empty(1, device="cpu")[None]
    base = view._base
    return sys.getrefcount(base)


def _num_holders_of_storage(tensor: torch.Tensor) -> int:
    return torch._C._storage_Use_Count(tensor.untyped_storage()._cdata)


@functools.cache
def _num_holders_of_shown() -> int:
    array: Any = torch.empty(1, device="cpu").numpy()
    return _num_holders_of_storage(array.base)
