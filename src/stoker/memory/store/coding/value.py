"""Builds values of the bytes that encoding.py has made of them.

Promise: what comes back has the same types, values, strides, bases and bits, and shares memory with
nothing of the caller's. The base of a record's field is that field alone.
Ban: nothing of the user's is run.
"""

import ctypes
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from stoker.memory.store.coding import subclasses
from stoker.memory.store.coding.layout import ALIGN_NBYTES, DTYPES, HEAD, PATHS, address_of, loads
from stoker.memory.store.coding.shown import address_of_array, empty
from stoker.wire.palette import Planes, palette
from stoker.wire.stream_copy import STREAM_NBYTES, stream_copy

Rows = Mapping[tuple[object, ...], torch.Tensor]


class Value:
    """A value as it lies in memory. copied: whether what is built lies in memory of its own."""

    def __init__(self, memory: memoryview) -> None:
        nbytes, _ = HEAD.unpack_from(memory)
        self._described = loads(memory[HEAD.size : HEAD.size + nbytes])
        self._at = -(-(HEAD.size + nbytes) // ALIGN_NBYTES) * ALIGN_NBYTES
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
        self._at += -(-nbytes // ALIGN_NBYTES) * ALIGN_NBYTES
        if start + nbytes > self._memory.nbytes:
            raise ValueError("a value is shorter than what it tells of itself")
        return self._memory[start : start + nbytes]

    def _decode(
        self, address: int, nbytes: int, item_nbytes: int, num_planes: int, streams: bool
    ) -> None:
        """Decode what comes next to an address."""
        assert palette is not None  # the same library has encoded it
        planes = Planes(num_planes, nbytes // item_nbytes // num_planes, item_nbytes)
        palette.decode(address, address_of(self._next(planes.coded_nbytes)), planes, streams)

    def _tensor(self, described: tuple[Any, ...], copied: bool) -> torch.Tensor:
        kind, name, shape, strides, nbytes, coded = described
        dtype = DTYPES[name]
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

    def _view(self, described: tuple[Any, ...], copied: bool) -> torch.Tensor:
        _, whole, shape, strides, first = described
        return self._tensor(whole, copied).as_strided(shape, strides, first)

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
            stream_copy(row.data_ptr(), (address_of(self._next(nbytes)),), nbytes)
        else:
            ctypes.memmove(row.data_ptr(), address_of(self._next(nbytes)), nbytes)
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
        tensor = self._built(values, copied)
        found = subclasses.made(number, tensor, self._built(state, copied))
        self._rows = rows
        return found

    def _member(self, described: tuple[Any, ...], copied: bool) -> Any:
        return subclasses.member(*described[1:])

    def _path(self, described: tuple[Any, ...], copied: bool) -> Any:
        return PATHS[described[1]](described[2])

    def _scalar(self, described: tuple[Any, ...], copied: bool) -> Any:
        numpy: Any = sys.modules["numpy"]
        return numpy.frombuffer(described[2], described[1])[0]

    def _array(self, described: tuple[Any, ...], copied: bool) -> Any:
        numpy: Any = sys.modules["numpy"]
        _, dtype, shape, strides, nbytes, coded, owns = described
        if not coded:
            here = numpy.ndarray(shape, dtype, self._next(nbytes), 0, strides)
            if not copied:
                return here
        if owns:
            made = empty(shape, dtype, strides)
        else:
            made = numpy.ndarray(shape, dtype, bytearray(nbytes), 0, strides)
        if coded:
            streams = nbytes >= STREAM_NBYTES
            self._decode(address_of_array(made), nbytes, made.itemsize, coded, streams)
        else:
            made[...] = here
        return made

    def _array_view(self, described: tuple[Any, ...], copied: bool) -> Any:
        numpy: Any = sys.modules["numpy"]
        _, whole, shape, strides, start = described
        return numpy.ndarray(shape, whole[1], self._array(whole, copied), start, strides)

    def _array_of_tensor(self, described: tuple[Any, ...], copied: bool) -> Any:
        rows, self._rows = self._rows, None  # those of a batch are tensors
        made = self._built(described[1], copied).numpy()
        self._rows = rows
        return made

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
    "s": Value._subclass, "e": Value._member, "w": Value._view, "x": Value._array_view, "y": Value._array_of_tensor,
}  # fmt: skip


def _is_like(row: torch.Tensor, dtype: torch.dtype, shape: Any, strides: Any) -> bool:
    """Whether a tensor of these strides, or of any, is laid into a batch as it lies here."""
    is_same = row.dtype is dtype and row.shape == shape
    return is_same and (strides is None or row.stride() == strides)
