"""Turns values into bytes and back: numbers, text, containers, tensors, arrays, PIL images.

Elements of few different values are kept as a byte each (wire/palette.py).

Promise: what comes back has the same types, values, strides and bits, and shares memory with
nothing of the caller's. What cannot be brought back so raises NotStorable.
Ban: nothing of the user's is pickled or run.
"""

import ctypes
import io
import math
import pathlib
import pickle
import struct
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

from stoker.memory.store import subclasses
from stoker.wire.palette import Planes, palette, planes_of
from stoker.wire.stream_copy import STREAM_NBYTES, stream_copy

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


Rows = Mapping[tuple[object, ...], torch.Tensor]


class NotStorable(Exception):
    """A value cannot be kept; says why."""


class _Encoder:
    def __init__(self, foreign: Sequence[tuple[int, int]], in_rows: bool) -> None:
        self._in_rows = in_rows
        self.buffers: list[memoryview] = []
        self._ranges = list(foreign)  # memory that was taken in, to find what is shared

    def describe(self, value: Any, depth: int = 0) -> tuple[Any, ...]:
        kind = type(value)
        if kind in _PLAIN:
            return ("v", value)
        if kind in _PATHS:
            return ("p", _PATHS.index(kind), str(value))
        if depth > _MAX_DEPTH:
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
        self._note(value.data_ptr(), value.nbytes)
        dense, kind = value, "T"
        if order and self._in_rows:
            dense, kind = value.contiguous(), "R"
        elif order:
            dense = value.permute(order)
        coded = self._elements(dense.data_ptr(), dense.shape, value.element_size(), dense)
        return (kind, name, shape, strides, value.nbytes, coded)

    def _array(self, value: Any) -> tuple[Any, ...]:
        if value.dtype.kind not in "biufc" or not value.flags.writeable or not value.flags.aligned:
            raise NotStorable("an array that is more than its numbers")
        strides = tuple(step // max(value.itemsize, 1) for step in value.strides)
        order = _order_of(value.shape, strides)
        if order is None:
            raise NotStorable("an array that shows only a part of its memory")
        lying = tuple(value.shape[k] for k in order) if order else value.shape
        address = value.__array_interface__["data"][0]
        self._note(address, value.nbytes)
        coded = self._elements(address, lying, value.itemsize, value)
        return ("a", value.dtype.str, tuple(value.shape), tuple(value.strides), value.nbytes, coded)

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
        self._add(_memory_at(address, math.prod(shape) * item_nbytes, held))
        return 0

    def _add(self, memory: memoryview) -> None:
        self.buffers.append(memory)
        gap = -memory.nbytes % _ALIGN_NBYTES
        if gap:
            self.buffers.append(memoryview(bytes(gap)))


def encode(
    value: Any, foreign: Sequence[tuple[int, int]] = (), in_rows: bool = False
) -> list[memoryview]:
    """Return parts whose bytes, one behind the other, are a value. Raises NotStorable.

    Equal values give equal bytes. The parts view the value's own memory: to be used before anything
    changes it. foreign: start and end of memory that others see too, of which it may have nothing.
    in_rows: a tensor's elements are kept in the order in which they lie in a batch.
    """
    encoder = _Encoder(foreign, in_rows)
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


class _Plain(pickle.Unpickler):
    """Makes what `_dumps` takes, and calls nothing: a value may come from a file."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("builtins", "complex"):
            return complex
        raise pickle.UnpicklingError(f"{module}.{name} in a value")


def _loads(data: memoryview) -> Any:
    return _Plain(io.BytesIO(data)).load()


class Value:
    """A value as it lies in memory. copied: whether what is built may be written to by the script."""

    def __init__(self, memory: memoryview) -> None:
        nbytes, _ = _HEAD.unpack_from(memory)
        self._described = _loads(memory[_HEAD.size : _HEAD.size + nbytes])
        self._at = -(-(_HEAD.size + nbytes) // _ALIGN_NBYTES) * _ALIGN_NBYTES
        self._rows: Rows | None = None
        self._where: tuple[object, ...] = ()
        self._memory = memory

    def build(self, copied: bool) -> Any:
        """Return the value; its tensors and arrays view the memory, or are copies of it."""
        return self._built(self._described, copied)

    def items(self, copied: bool, rows: Rows | None = None) -> Iterator[Any]:
        """Iterate the items of a value that is a tuple, each as `build` would return it.

        rows: tensors of a batch, each by its keys in a dict's only item, from the outside in; a
        tensor that lies there and is like its row is written into it, and is the row.
        """
        kind, items = self._described
        if kind == "v":
            yield from items
            return
        for item in items:
            self._rows = rows
            yield self._built(item, copied)

    def _built(self, described: tuple[Any, ...], copied: bool) -> Any:
        kind = described[0]
        if kind == "v":
            return described[1]
        if kind == "T" or kind == "R":
            return self._tensor(described, copied)
        return _BUILD[kind](self, described, copied)

    def _inside(self, key: object, described: tuple[Any, ...], copied: bool) -> Any:
        if self._rows is None:
            return self._built(described, copied)
        where, self._where = self._where, (*self._where, key)
        made = self._built(described, copied)
        self._where = where
        return made

    def _next(self, nbytes: int) -> memoryview:
        start = self._at
        self._at += -(-nbytes // _ALIGN_NBYTES) * _ALIGN_NBYTES
        if start + nbytes > self._memory.nbytes:
            raise ValueError("a value is shorter than what it tells of itself")
        return self._memory[start : start + nbytes]

    def _decode(
        self, address: int, nbytes: int, item_nbytes: int, num_planes: int, streams: bool
    ) -> None:
        """Decode what comes next to an address."""
        assert palette is not None  # the same library has encoded it
        planes = Planes(num_planes, nbytes // item_nbytes // num_planes, item_nbytes)
        palette.decode(address, _address_of(self._next(planes.coded_nbytes)), planes, streams)

    def _tensor(self, described: tuple[Any, ...], copied: bool) -> torch.Tensor:
        kind, name, shape, strides, nbytes, coded = described
        dtype = _DTYPES[name]
        if self._rows is not None:
            row = self._rows.get(self._where[1:])
            if kind == "R":
                strides = None  # a batch's rows have none of their own
            if row is not None and _is_like(row, dtype, shape, strides):
                return self._fill(row, nbytes, coded)
        elif kind == "R":
            made = self._dense(dtype, shape, None, nbytes, coded, False)
            return torch.empty_strided(shape, strides, dtype=dtype, device="cpu").copy_(made)
        return self._dense(dtype, shape, strides, nbytes, coded, copied)

    def _dense(
        self, dtype: torch.dtype, shape: Any, strides: Any, nbytes: int, coded: int, copied: bool
    ) -> torch.Tensor:
        """Build what lies here in order. strides: None, those that are made for the shape."""
        if coded or not nbytes:
            if strides is None:
                made = torch.empty(shape, dtype=dtype, device="cpu")
            else:
                made = torch.empty_strided(shape, strides, dtype=dtype, device="cpu")
            if coded:
                streams = nbytes >= STREAM_NBYTES
                self._decode(made.data_ptr(), nbytes, dtype.itemsize, coded, streams)
            return made
        flat = torch.frombuffer(self._next(nbytes), dtype=dtype)
        if copied:
            flat = flat.clone()
        if flat.shape == shape:
            return flat
        # Not a view of `flat`: it is to be as the tensor was, without a base.
        made = torch.empty(0, dtype=dtype, device="cpu")
        if strides is None:
            return made.set_(flat.untyped_storage()).resize_(shape)
        return made.set_(flat.untyped_storage(), 0, shape, strides)

    def _fill(self, row: torch.Tensor, nbytes: int, coded: int) -> torch.Tensor:
        streams = row.untyped_storage().nbytes() >= STREAM_NBYTES
        if coded:
            self._decode(row.data_ptr(), nbytes, row.element_size(), coded, streams)
        elif stream_copy is not None and streams:
            stream_copy(row.data_ptr(), (_address_of(self._next(nbytes)),), nbytes)
        else:
            ctypes.memmove(row.data_ptr(), _address_of(self._next(nbytes)), nbytes)
        return row

    def _list(self, described: tuple[Any, ...], copied: bool) -> list[Any]:
        return [self._inside(k, each, copied) for k, each in enumerate(described[1])]

    def _tuple(self, described: tuple[Any, ...], copied: bool) -> tuple[Any, ...]:
        return tuple(self._list(described, copied))

    def _dict(self, described: tuple[Any, ...], copied: bool) -> dict[Any, Any]:
        return {
            subclasses.member(*key) if type(key) is tuple else key: self._inside(key, each, copied)
            for key, each in described[1]
        }

    def _subclass(self, described: tuple[Any, ...], copied: bool) -> Any:
        _, number, values, state = described
        rows, self._rows = self._rows, None  # those of a batch are plain
        tensor = self._tensor(values, copied)
        found = subclasses.made(number, tensor, self._built(state, copied))
        self._rows = rows
        return found

    def _member(self, described: tuple[Any, ...], copied: bool) -> Any:
        return subclasses.member(*described[1:])

    def _path(self, described: tuple[Any, ...], copied: bool) -> Any:
        return _PATHS[described[1]](described[2])

    def _scalar(self, described: tuple[Any, ...], copied: bool) -> Any:
        numpy: Any = sys.modules["numpy"]
        return numpy.frombuffer(described[2], described[1])[0]

    def _array(self, described: tuple[Any, ...], copied: bool) -> Any:
        numpy: Any = sys.modules["numpy"]
        _, dtype, shape, strides, nbytes, coded = described
        if not coded:
            made = numpy.ndarray(shape, dtype, self._next(nbytes), 0, strides)
            if not copied:
                return made
        own = numpy.ndarray(shape, dtype, None, 0, None)
        order = []
        if strides != own.strides:
            order = sorted(range(len(shape)), key=lambda k: -strides[k])
            own = numpy.ndarray([shape[k] for k in order], dtype, None, 0, None)
        if coded:
            address = own.__array_interface__["data"][0]
            self._decode(address, nbytes, own.itemsize, coded, nbytes >= STREAM_NBYTES)
        else:
            own[...] = made.transpose(order) if order else made
        return _permuted(own, order) if order else own

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
    "t": Value._tuple, "l": Value._list, "d": Value._dict, "n": Value._scalar, "a": Value._array, "i": Value._image, "p": Value._path,
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


def _is_like(row: torch.Tensor, dtype: torch.dtype, shape: Any, strides: Any) -> bool:
    """Whether a tensor of these strides, or of any, is laid into a batch as it lies here."""
    is_same = row.dtype is dtype and row.shape == shape
    return is_same and (strides is None or row.stride() == strides)


def _are_plain(described: Sequence[tuple[Any, ...]]) -> bool:
    """Whether these are all that they describe, so that a container of them need not be built."""
    return all(each[0] == "v" for each in described)


def _address_of(memory: memoryview) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(memory))


def _memory_at(address: int, nbytes: int, held: Any) -> memoryview:
    """View memory, and hold whose it is."""
    if not nbytes:
        return memoryview(b"")
    memory: Any = (ctypes.c_ubyte * nbytes).from_address(address)
    memory.held = held
    return memoryview(memory).cast("B")


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
