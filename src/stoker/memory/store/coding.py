"""Turns values into bytes and back: numbers, text, containers, tensors, arrays, PIL images.

Promise: what comes back has the same types, values, strides and bits, and shares memory with
nothing of the caller's. What cannot be brought back so raises NotStorable.
Ban: nothing of the user's is pickled or run.
"""

import ctypes
import io
import pathlib
import pickle
import struct
import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch

from stoker.memory.store import subclasses

_HEAD = struct.Struct("<II")  # bytes of the description, number of buffers
_ALIGN_NBYTES = 64
_MAX_DEPTH = 16
_PLAIN = (type(None), bool, int, float, complex, str, bytes)
_PATHS = (pathlib.PosixPath, pathlib.PurePosixPath)
_DTYPES = {
    str(dtype): dtype
    for dtype in (
        torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.bfloat16,
        torch.float16, torch.float32, torch.float64, torch.complex64, torch.complex128,
    )
}  # fmt: skip
_MODES = {"1", "L", "LA", "RGB", "RGBA", "RGBX", "CMYK", "YCbCr", "HSV", "I", "F", "I;16"}
_IMAGE_NAMES = {"_im", "_mode", "_size", "palette", "info", "_readonly", "_exif"}  # Pillow 11 to 13


_IMMUTABLE = (*_PLAIN, *_PATHS)


class NotStorable(Exception):
    """A value cannot be kept; says why."""


class _Encoder:
    def __init__(self, foreign: Sequence[tuple[int, int]]) -> None:
        self.buffers: list[memoryview] = []
        self._ranges = list(foreign)  # memory that was taken in, to find what is shared
        self._keep: list[object] = []

    def describe(self, value: Any, depth: int = 0) -> tuple[Any, ...]:
        kind = type(value)
        if kind in _PLAIN:
            return ("v", value)
        if kind in _PATHS:
            return ("p", _PATHS.index(kind), str(value))
        if depth > _MAX_DEPTH:
            raise NotStorable("is nested too deeply")
        if kind is tuple or kind is list:
            return kind.__name__[0], [self.describe(each, depth + 1) for each in value]
        if kind is dict:
            items = [(_key(key), self.describe(each, depth + 1)) for key, each in value.items()]
            return ("d", items)
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
            return self._image(value)
        raise NotStorable(f"is a {kind.__module__}.{kind.__qualname__}")

    def _tensor(self, value: torch.Tensor) -> tuple[Any, ...]:
        name = str(value.dtype)
        if (
            name not in _DTYPES
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
        shape, strides = tuple(value.shape), tuple(value.stride())
        order = _order_of(shape, strides)
        if order is None:
            raise NotStorable("a tensor that shows only a part of its memory")
        dense = value.permute(order) if order else value
        self._take(value.data_ptr(), value.nbytes, dense)
        return ("T", name, shape, strides, value.nbytes)

    def _array(self, value: Any) -> tuple[Any, ...]:
        if value.dtype.kind not in "biufc" or not value.flags.writeable or not value.flags.aligned:
            raise NotStorable("an array that is more than its numbers")
        strides = tuple(step // max(value.itemsize, 1) for step in value.strides)
        order = _order_of(value.shape, strides)
        if order is None:
            raise NotStorable("an array that shows only a part of its memory")
        self._take(value.__array_interface__["data"][0], value.nbytes, value)
        return ("a", value.dtype.str, tuple(value.shape), tuple(value.strides), value.nbytes)

    def _image(self, value: Any) -> tuple[Any, ...]:
        if set(vars(value)) - _IMAGE_NAMES or value.palette is not None or value.mode not in _MODES:
            raise NotStorable("an image with more than its pixels")
        if getattr(value, "_exif", None) is not None:
            raise NotStorable("an image with more than its pixels")
        info = self.describe(value.info, 1)
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

    def _take(self, address: int, nbytes: int, held: Any) -> None:
        for start, end in self._ranges:
            if address < end and start < address + nbytes:
                raise NotStorable("a value shares memory with something else")
        if nbytes:
            self._ranges.append((address, address + nbytes))
        self._keep.append(held)
        self._add(_memory_at(address, nbytes))

    def _add(self, memory: memoryview) -> None:
        self.buffers.append(memory)
        gap = -memory.nbytes % _ALIGN_NBYTES
        if gap:
            self.buffers.append(memoryview(bytes(gap)))


def encode(value: Any, foreign: Sequence[tuple[int, int]] = ()) -> list[memoryview]:
    """Return parts whose bytes, one behind the other, are a value. Raises NotStorable.

    Equal values give equal bytes. The parts view the value's own memory: to be used before anything
    changes it. foreign: start and end of memory that others see too, of which it may have nothing.
    """
    encoder = _Encoder(foreign)
    described = _dumps(encoder.describe(value))
    head = _HEAD.pack(len(described), len(encoder.buffers)) + described
    return [memoryview(head + bytes(-len(head) % _ALIGN_NBYTES)), *encoder.buffers]


def _dumps(described: object) -> bytes:
    """Pickle numbers, text and containers of them, so that the bytes depend on values alone."""
    file = io.BytesIO()
    pickler = pickle.Pickler(file, protocol=4)
    pickler.fast = True  # no memo: it would tell which objects are the same
    pickler.dump(described)
    return file.getvalue()


class Value:
    """A value as it lies in memory. copied: whether what is built may be written to by the script."""

    def __init__(self, memory: memoryview) -> None:
        nbytes, _ = _HEAD.unpack_from(memory)
        self._described = pickle.loads(memory[_HEAD.size : _HEAD.size + nbytes])
        self._start = -(-(_HEAD.size + nbytes) // _ALIGN_NBYTES) * _ALIGN_NBYTES
        self._memory = memory

    def build(self, copied: bool) -> Any:
        """Return the value; its tensors and arrays view the memory, or are copies of it."""
        self._at = self._start
        return self._built(self._described, copied)

    def _built(self, described: tuple[Any, ...], copied: bool) -> Any:
        kind = described[0]
        if kind == "v":
            return described[1]
        if kind == "T":
            return self._tensor(described, copied)
        if kind == "l":
            return [self._built(each, copied) for each in described[1]]
        return _BUILD[kind](self, described, copied)

    def _next(self, nbytes: int) -> memoryview:
        start = self._at
        self._at += -(-nbytes // _ALIGN_NBYTES) * _ALIGN_NBYTES
        return self._memory[start : start + nbytes]

    def _tensor(self, described: tuple[Any, ...], copied: bool) -> torch.Tensor:
        _, name, shape, strides, nbytes = described
        dtype = _DTYPES[name]
        memory = self._next(nbytes)
        if not nbytes:
            return torch.empty_strided(shape, strides, dtype=dtype, device="cpu")
        flat = torch.frombuffer(memory, dtype=dtype)
        if copied:
            flat = flat.clone()
        if flat.shape == shape:
            return flat
        # Not a view of `flat`: it is to be as the tensor was, without a base.
        return torch.empty(0, dtype=dtype, device="cpu").set_(
            flat.untyped_storage(), 0, shape, strides
        )

    def _tuple(self, described: tuple[Any, ...], copied: bool) -> tuple[Any, ...]:
        return tuple([self._built(each, copied) for each in described[1]])

    def _dict(self, described: tuple[Any, ...], copied: bool) -> dict[Any, Any]:
        return {
            subclasses.member(*key) if type(key) is tuple else key: self._built(each, copied)
            for key, each in described[1]
        }

    def _subclass(self, described: tuple[Any, ...], copied: bool) -> Any:
        _, number, values, state = described
        tensor = self._tensor(values, copied)
        return subclasses.made(number, tensor, self._dict(state, copied))

    def _member(self, described: tuple[Any, ...], copied: bool) -> Any:
        return subclasses.member(*described[1:])

    def _path(self, described: tuple[Any, ...], copied: bool) -> Any:
        return _PATHS[described[1]](described[2])

    def _scalar(self, described: tuple[Any, ...], copied: bool) -> Any:
        numpy: Any = sys.modules["numpy"]
        return numpy.frombuffer(described[2], described[1])[0]

    def _array(self, described: tuple[Any, ...], copied: bool) -> Any:
        numpy: Any = sys.modules["numpy"]
        _, dtype, shape, strides, nbytes = described
        memory = self._next(nbytes)
        made = numpy.ndarray(shape, dtype, memory, 0, strides)
        if not copied:
            return made
        own = numpy.ndarray(shape, dtype, None, 0, None)
        if strides != own.strides:
            order = sorted(range(len(shape)), key=lambda k: -strides[k])
            return _permuted(made.transpose(order).copy(), order)
        own[...] = made
        return own

    def _image(self, described: tuple[Any, ...], copied: bool) -> Any:
        image: Any = sys.modules["PIL.Image"]
        _, mode, size, info, readonly, has_exif, nbytes = described
        told = self._built(info, copied)
        made = image.frombytes(mode, size, self._next(nbytes))
        made.info = told
        made._readonly = readonly
        if has_exif:
            made._exif = None
        return made


_BUILD: dict[str, Callable[[Value, tuple[Any, ...], bool], Any]] = {
    "t": Value._tuple, "d": Value._dict, "n": Value._scalar, "a": Value._array, "i": Value._image, "p": Value._path,
    "s": Value._subclass, "e": Value._member,
}  # fmt: skip


def _key(key: Any) -> Any:
    """Return what stands for a key of a dict. Raises NotStorable."""
    if type(key) in (str, int, bool):
        return key
    member = subclasses.member_of(key)
    if member is None:
        raise NotStorable("a dict has keys that are no strings")
    return member


def _permuted(array: Any, order: list[int]) -> Any:
    back = sorted(range(len(order)), key=lambda k: order[k])
    return array.transpose(back)


def _order_of(shape: Any, strides: Any) -> tuple[int, ...] | None:
    """Return the order of dimensions in which the memory is dense; () if it is their own.

    None if there is none: then there are gaps, or a value is seen twice.
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


def _memory_at(address: int, nbytes: int) -> memoryview:
    if not nbytes:
        return memoryview(b"")
    return memoryview((ctypes.c_ubyte * nbytes).from_address(address)).cast("B")


def is_alone(holder: Any, key: Any) -> bool:
    """Whether nothing but holder[key] holds that value, nor anything mutable inside it."""
    kind = type(holder[key])
    if kind in _IMMUTABLE or _is_scalar(holder[key]) or subclasses.member_of(holder[key]):
        return True
    if kind is tuple and all(type(each) in _PLAIN for each in holder[key]):
        return True  # a constant of the code's
    if _num_holders(holder, key) != _ALONE:
        return False
    if kind is dict:
        return all(is_alone(holder[key], each) for each in holder[key])
    if kind is list or kind is tuple:
        return all(is_alone(holder[key], each) for each in range(len(holder[key])))
    if subclasses.number_of(kind) is not None:
        return all(is_alone(vars(holder[key]), each) for each in vars(holder[key]))
    return True


def _is_scalar(value: Any) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, numpy.generic)


def _num_holders(holder: Any, key: Any) -> int:
    return sys.getrefcount(holder[key])


_ALONE = _num_holders([object()], 0)
