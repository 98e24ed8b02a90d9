"""Turns values into bytes: numbers, text, containers, tensors, arrays, PIL images.

Elements of few different values are kept as a byte each (wire/palette.py).

Promise: what cannot be brought back as it was, to the bit, raises NotStorable.
"""

import contextlib
import math
import sys
from collections.abc import Sequence
from typing import Any

import torch

from stoker.memory.store.coding import subclasses
from stoker.memory.store.coding.layout import (
    ALIGN_NBYTES,
    DTYPES,
    HEAD,
    IMAGE_BITS,
    KEYS,
    MAX_DEPTH,
    PATHS,
    PLAIN,
    NotStorable,
    dumps,
    memory_at,
)
from stoker.memory.store.coding.shown import (
    Record,
    address_of_array,
    is_field_of_record,
    order_of,
    tensor_shown,
    whole_of_array,
    whole_of_tensor,
)
from stoker.wire.palette import palette, planes_of

_IMAGE_NAMES = {"_im", "_mode", "_size", "palette", "info", "_readonly", "_exif"}  # Pillow 11 to 13


def have_made(levels: Sequence[dict[str, Any]]) -> None:
    """Have images that wait get their pixels (images/lazy.py): to make a value is to make these."""
    image: Any = sys.modules.get("PIL.Image")
    for values in levels:
        for value in values.values():
            if image is not None and type(value) is image.Image:
                with contextlib.suppress(Exception):  # the value is not kept, then
                    value.load()


class _Encoder:
    def __init__(self, foreign: Sequence[tuple[int, int]], for_batch: bool) -> None:
        self._for_batch = for_batch
        self.buffers: list[memoryview] = []
        self._ranges = list(foreign)  # memory that was taken in, to find what is shared
        self._records: dict[int, Record] = {}  # by address, those of which fields were taken in

    def describe(self, value: Any, depth: int = 0) -> tuple[Any, ...]:
        kind = type(value)
        if kind in PLAIN:
            return ("v", value)
        if kind in PATHS:
            return ("p", PATHS.index(kind), str(value))
        if depth > MAX_DEPTH:
            raise NotStorable("is nested too deeply")
        if kind is tuple or kind is list:
            items = [self.describe(each, depth + 1) for each in value]
            return ("v", value) if _are_plain(items) else (kind.__name__[0], items)
        if kind is dict:
            keys = [_key(key) for key in value]
            items = [self.describe(each, depth + 1) for each in value.values()]
            if _are_plain(items) and tuple not in map(type, keys):
                return ("v", value)
            return ("d", list(zip(keys, items, strict=True)))
        if kind is torch.Tensor:
            return self._tensor(value)
        number = subclasses.number_of(kind)
        if number is not None:
            values = self._tensor(subclasses.plain(value))
            return ("s", number, values, self.describe(vars(value), depth + 1))
        member = subclasses.member_of(value)
        if member is not None:
            return ("e", *member)
        numpy = sys.modules.get("numpy")
        if numpy is not None and kind is numpy.ndarray:
            return self._array(value)
        if numpy is not None and isinstance(value, numpy.generic) and value.dtype.kind in "biufc":
            return ("n", value.dtype.str, value.tobytes())
        image = sys.modules.get("PIL.Image")
        if image is not None and kind is image.Image:
            return self._image(value, depth)
        raise NotStorable(f"is a {kind.__module__}.{kind.__qualname__}")

    def _tensor(self, value: torch.Tensor) -> tuple[Any, ...]:
        name = str(value.dtype)
        if (
            name not in DTYPES
            or value.layout is not torch.strided
            or value.device.type != "cpu"
            or value.requires_grad
            or value.is_conj()
            or value.is_neg()
            or value.__dict__
            or value._backward_hooks
            or value.is_inference()
        ):
            raise NotStorable("a tensor that is more than its values")
        whole = value if self._for_batch else whole_of_tensor(value)
        shape, strides = tuple(whole.shape), tuple(whole.stride())
        order = order_of(shape, strides)
        if order is None:
            raise NotStorable("a tensor that shows only a part of its memory")
        self._note(whole.data_ptr(), whole.nbytes)
        dense, kind = whole, "T"
        if order and self._for_batch:
            dense, kind = whole.contiguous(), "R"
        elif order:
            dense = whole.permute(order)
        coded = self._elements(dense.data_ptr(), dense.shape, whole.element_size(), dense)
        described = (kind, name, shape, strides, whole.nbytes, coded)
        if whole is value:
            return described
        return ("w", described, tuple(value.shape), value.stride(), value.storage_offset())

    def _array(self, value: Any) -> tuple[Any, ...]:
        if value.dtype.kind not in "biufc" or not value.flags.writeable or not value.flags.aligned:
            raise NotStorable("an array that is more than its numbers")
        tensor = None if self._for_batch else tensor_shown(value)
        if tensor is not None:
            return ("y", self._tensor(tensor))
        is_field = not self._for_batch and is_field_of_record(value)
        if is_field:
            self._records.setdefault(id(value.base), Record(value.base)).num_fields += 1
        whole = value if is_field or self._for_batch else whole_of_array(value)
        shape, strides = tuple(whole.shape), tuple(whole.strides)
        order = order_of(shape, [step // max(whole.itemsize, 1) for step in strides])
        if order is None:
            raise NotStorable("an array that shows only a part of its memory")
        lying = [shape[k] for k in order] if order else shape
        address = address_of_array(whole)
        self._note(address, whole.nbytes)
        coded = self._elements(address, lying, whole.itemsize, whole)
        owns = is_field or self._for_batch or whole.base is None
        described = ("a", whole.dtype.str, shape, strides, whole.nbytes, coded, owns)
        if whole is value and not is_field:
            return described
        start = address_of_array(value) - address
        return ("x", described, tuple(value.shape), tuple(value.strides), start)

    def check_records(self) -> None:
        """Raises NotStorable."""
        if any(each.is_held_elsewhere for each in self._records.values()):
            raise NotStorable("an array that shows a part of what is held elsewhere too")

    def _image(self, value: Any, depth: int) -> tuple[Any, ...]:
        if (
            set(vars(value)) - _IMAGE_NAMES
            or value.palette is not None
            or value.mode not in IMAGE_BITS
        ):
            raise NotStorable("an image with more than its pixels")
        if getattr(value, "_exif", None) is not None:
            raise NotStorable("an image with more than its pixels")
        info = self.describe(value.info, depth + 1)
        pixels = memoryview(value.tobytes())
        self._add(pixels)
        return (
            "i",
            value.mode,
            value.size,
            info,
            value._readonly,
            "_exif" in vars(value),
            pixels.nbytes,
        )

    def _note(self, address: int, nbytes: int) -> None:
        for start, end in self._ranges:
            if address < end and start < address + nbytes:
                raise NotStorable("a value shares memory with something else")
        if nbytes:
            self._ranges.append((address, address + nbytes))

    def _elements(self, address: int, shape: Sequence[int], item_nbytes: int, held: Any) -> int:
        """Add elements. shape: as they lie in memory; held: whose memory it is. Returns the planes
        that they are coded as; 0: they are kept as they are."""
        for planes in planes_of(shape, item_nbytes):
            coded = None if palette is None else palette.encode(address, planes)
            if coded is not None:
                self._add(memoryview(coded))
                return planes.num
        self._add(memory_at(address, math.prod(shape) * item_nbytes, held))
        return 0

    def _add(self, memory: memoryview) -> None:
        self.buffers.append(memory)
        gap = -memory.nbytes % ALIGN_NBYTES
        if gap:
            self.buffers.append(memoryview(bytes(gap)))


def encode(
    value: Any, foreign: Sequence[tuple[int, int]] = (), for_batch: bool = False
) -> list[memoryview]:
    """Return parts whose bytes, one behind the other, are a value. Raises NotStorable.

    Equal values give equal bytes. The parts view the value's own memory: to be used before anything
    changes it. foreign: start and end of memory that others see too, of which it may have nothing.
    for_batch: nothing but torch's default_collate sees it: a tensor's elements are kept in the order
    in which they lie in a batch, and whose memory it shows is not kept.
    """
    encoder = _Encoder(foreign, for_batch)
    described = dumps(encoder.describe(value))
    encoder.check_records()
    head = HEAD.pack(len(described), len(encoder.buffers)) + described
    return [memoryview(head + bytes(-len(head) % ALIGN_NBYTES)), *encoder.buffers]


def _key(key: Any) -> Any:
    """Return what stands for a key of a dict. Raises NotStorable."""
    if type(key) in KEYS:
        return key
    member = subclasses.member_of(key)
    if member is None:
        raise NotStorable("a dict has keys that are no strings")
    return member


def _are_plain(described: Sequence[tuple[Any, ...]]) -> bool:
    """Whether these are all that they describe, so that a container of them need not be built."""
    return all(each[0] == "v" for each in described)
