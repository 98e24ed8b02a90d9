"""Encodes nested batches as buffers and decodes them, without copying what lies in the arena.

Promise: what is decoded equals what torch's own worker queue would give: types, values, strides,
and which tensors share a storage. How it travels:

- storages and arrays of LARGE_NBYTES or more lie in the worker's arena, where default_collate put
  them (worker/patches.py) or where `encode` copies them, and the trainer's tensors view them;
- smaller ones follow the pickle stream and are copied into ordinary, 64-byte aligned memory;
- everything else is in the pickle stream (protocol 5), by torch's own reducers.

Source of the rules: torch/multiprocessing/reductions.py `reduce_tensor`, `rebuild_tensor`, 2.13.
"""

import copyreg
import ctypes
import io
import pickle
import struct
import sys
import threading
from collections.abc import Callable, Sequence
from multiprocessing.reduction import ForkingPickler
from typing import Any, NamedTuple, cast

import torch
from torch.multiprocessing import reductions

from stoker.wire.arena import Heap, Lender
from stoker.wire.frame import INLINE, PLACE
from stoker.wire.sections import Shape
from stoker.wire.stream_copy import STREAM_NBYTES, stream_copy

# Below this a copy into ordinary memory costs less than keeping count of an extent.
# Measured: benchmarks/tokens.py and handover_small.py
LARGE_NBYTES = 64 * 1024

# A blob up to this size travels in the socket, a larger one through the arena.
INLINE_NBYTES = 64 * 1024

_DTYPES = sorted({d for d in vars(torch).values() if isinstance(d, torch.dtype)}, key=str)
_DTYPE_NUMBER = {dtype: number for number, dtype in enumerate(_DTYPES)}
_PLAIN = (torch.Tensor, torch.nn.Parameter)


class Encoded(NamedTuple):
    """A batch that is ready to be framed. The parts stay valid when the batch itself is gone."""

    table: bytes
    num_storages: int
    num_buffers: int
    stream_nbytes: int
    blob: list[bytes | memoryview]
    blob_offset: int
    shown: "list[torch.Tensor | None]"  # for each storage the first tensor that shows it

    @property
    def blob_nbytes(self) -> int:
        return sum(map(len, self.blob))

    @property
    def in_arena(self) -> list[tuple[int, int]]:
        """Offset and bytes of each storage and buffer that lies in the arena."""
        places = PLACE.iter_unpack(self.table)
        return [(offset, nbytes) for offset, nbytes, _ in places if offset != INLINE]

    def shapes(self) -> list[Shape | None]:
        """Return how each storage is viewed, for a sender that may compress it."""
        return [None if tensor is None else _shape_of(tensor) for tensor in self.shown]

    def inline_parts(self) -> list[bytes | memoryview]:
        """Return the parts that follow the table in the message itself."""
        return self.blob if self.blob_offset == INLINE else []


class LargeBuffers:
    """Takes buffers of `min_nbytes` or more out of a pickle stream; True keeps a buffer in it."""

    def __init__(self, buffers: list[memoryview], min_nbytes: int) -> None:
        self._buffers, self._min_nbytes = buffers, min_nbytes

    def __call__(self, buffer: pickle.PickleBuffer) -> bool:
        view = buffer.raw()
        if view.nbytes < self._min_nbytes:
            return True
        self._buffers.append(view)
        return False


def _is_copied_array(kind: type, value: object) -> bool:
    """Whether an array is to be pickled by torch's protocol: a small one, which then owns its memory
    or shows bytes, and a big-endian one, which then arrives in native order."""
    numpy = sys.modules.get("numpy")
    if numpy is None or not issubclass(kind, numpy.ndarray):
        return False
    array = cast(Any, value)
    return array.nbytes < LARGE_NBYTES or not array.dtype.isnative


class _Pickler(pickle.Pickler):
    """Pickles a batch; collects storages and large buffers on the way."""

    def __init__(self, file: io.BytesIO) -> None:
        self.buffers: list[memoryview] = []
        # Not a method: a cycle would keep every batch until the next garbage collection.
        large = LargeBuffers(self.buffers, LARGE_NBYTES)
        super().__init__(file, protocol=5, buffer_callback=large)
        self.dispatch_table = _reducers()  # type: ignore[assignment]
        self.storages: list[torch.UntypedStorage] = []
        self.shown: list[torch.Tensor | None] = []
        self.ranges: list[list[int]] = []  # bytes of the storage that anything shows
        self._number: dict[int, int] = {}

    def reducer_override(self, value: object) -> object:  # type: ignore[override]  # pickle's
        kind = type(value)
        if kind in _PLAIN:
            tensor = cast(torch.Tensor, value)
            if (
                tensor.layout is not torch.strided
                or tensor.is_nested  # may be called strided, and has neither sizes nor strides
                or tensor.device.type != "cpu"
                or tensor.requires_grad
                or tensor.is_quantized
                or kind is not torch.Tensor
            ):
                return reductions.reduce_tensor(tensor)
            return _tensor, self._describe(tensor)
        if kind is torch.UntypedStorage:
            storage = cast(torch.UntypedStorage, value)
            if storage.device.type == "cpu":
                return _storage, (self._add(storage, 0, storage.nbytes()),)
        if kind not in _merged and _is_copied_array(kind, value):
            return value.__reduce_ex__(pickle.DEFAULT_PROTOCOL)
        return NotImplemented

    def _describe(self, tensor: torch.Tensor) -> tuple[object, ...]:
        storage = tensor.untyped_storage()
        offset, size, stride = int(tensor.storage_offset()), tensor.shape, tensor.stride()
        first, end = 0, storage.nbytes()
        if end >= LARGE_NBYTES and end != tensor.nbytes:
            first, end = _shown(offset, size, stride, tensor.element_size())
        number = self._add(storage, first, end, tensor)
        return number, _DTYPE_NUMBER[tensor.dtype], offset, tuple(size), stride

    def _add(
        self,
        storage: torch.UntypedStorage,
        first: int,
        end: int,
        tensor: torch.Tensor | None = None,
    ) -> int:
        number = self._number.get(storage._cdata)
        if number is None:
            number = self._number[storage._cdata] = len(self.storages)
            self.storages.append(storage)
            self.shown.append(tensor)
            self.ranges.append([first, end])
        elif first < end:
            shown = self.ranges[number]
            empty = shown[0] == shown[1]
            shown[0] = first if empty else min(shown[0], first)
            shown[1] = end if empty else max(shown[1], end)
        return number


def _shape_of(tensor: torch.Tensor) -> Shape:
    itemsize = tensor.element_size()
    strides = tuple(stride * itemsize for stride in tensor.stride())
    first = int(tensor.storage_offset()) * itemsize
    return Shape(str(tensor.dtype).removeprefix("torch."), first, tuple(tensor.shape), strides)


def _shown(offset: int, size: Sequence[int], stride: Sequence[int], itemsize: int) -> list[int]:
    """Return the bytes [first, end) of a storage that a tensor views; empty for no elements.

    first is a multiple of 64, so that what is cut off changes no tensor's alignment.
    """
    if 0 in size:
        return [0, 0]
    span = sum((n - 1) * step for n, step in zip(size, stride, strict=True))
    return [offset * itemsize & ~63, (offset + span + 1) * itemsize]


def _reducers() -> dict[type, Callable[..., object]]:
    extra: dict[type, Callable[..., object]] = ForkingPickler._extra_reducers  # type: ignore[attr-defined]
    if len(_merged) < len(extra) + len(copyreg.dispatch_table):
        _merged.update(copyreg.dispatch_table)
        _merged.update(extra)
    return _merged


_merged: dict[type, Callable[..., object]] = {}


def encode(batch: object, heap: Heap | None) -> Encoded:
    """Encode a batch as frame parts. heap: where large parts go; None keeps all in the message.

    Every extent that the frame names gets one more holder, the reader. Raises what pickling raises.
    """
    file = io.BytesIO()
    pickler = _Pickler(file)
    pickler.dump(batch)
    stream = file.getbuffer()
    places: list[bytes] = []
    tail: list[bytes | memoryview] = []
    for storage, (first, end) in zip(pickler.storages, pickler.ranges, strict=True):
        address = storage.data_ptr()
        offset = None if heap is None else heap.find(address)
        if heap is not None and offset is not None:
            heap.hold(offset)
            places.append(PLACE.pack(offset, storage.nbytes(), 0))
        else:
            places.append(_place(address + first, end - first, first, heap, tail))
    for view in pickler.buffers:
        address = ctypes.addressof(ctypes.c_char.from_buffer(view)) if not view.readonly else 0
        if address:
            places.append(_place(address, view.nbytes, 0, heap, tail))
        else:
            places.append(PLACE.pack(INLINE, view.nbytes, 0))
            tail.append(view)
    blob: list[bytes | memoryview] = [stream, *tail]
    blob_offset = _move_blob(blob, heap)
    return Encoded(
        b"".join(places), len(pickler.storages), len(pickler.buffers), len(stream),
        blob, blob_offset, pickler.shown,
    )  # fmt: skip


def _place(
    address: int, nbytes: int, first: int, heap: Heap | None, tail: list[bytes | memoryview]
) -> bytes:
    """Copy bytes into the arena if they are many and it has room, else append them to the tail."""
    view = heap.allocate(nbytes) if heap is not None and nbytes >= LARGE_NBYTES else None
    if heap is None or view is None:
        tail.append(ctypes.string_at(address, nbytes))
        return PLACE.pack(INLINE, nbytes, first)
    offset = _start_of(heap, view)
    destination = heap.arena.address + offset
    if stream_copy is not None and nbytes >= STREAM_NBYTES:
        stream_copy(destination, [address], nbytes)
    else:
        ctypes.memmove(destination, address, nbytes)
    heap.hold(offset)
    return PLACE.pack(offset, nbytes, first)


def _move_blob(blob: list[bytes | memoryview], heap: Heap | None) -> int:
    """Copy a large blob into the arena. Returns its offset there, or INLINE."""
    nbytes = sum(map(len, blob))
    view = heap.allocate(nbytes) if heap is not None and nbytes > INLINE_NBYTES else None
    if heap is None or view is None:
        return INLINE
    position = 0
    for part in blob:
        view[position : position + len(part)] = part
        position += len(part)
    offset = _start_of(heap, view)
    heap.hold(offset)
    return offset


def _start_of(heap: Heap, view: memoryview) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(view)) - heap.arena.address


_ALONE = struct.Struct("<IIQ")


def dumps(value: object) -> bytes:
    """Encode a value into self-contained bytes, for index lists and the like."""
    if type(value) is int or (type(value) is list and set(map(type, value)) == {int}):
        stream = pickle.dumps(value, pickle.HIGHEST_PROTOCOL)  # nearly all index lists are that
        return _ALONE.pack(0, 0, len(stream)) + stream
    encoded = encode(value, None)
    head = _ALONE.pack(encoded.num_storages, encoded.num_buffers, encoded.stream_nbytes)
    return b"".join((head, encoded.table, *encoded.blob))


def loads(data: bytes | memoryview) -> object:
    """Decode the bytes that `dumps` returned. Raises what unpickling raises."""
    num_storages, num_buffers, stream_nbytes = _ALONE.unpack_from(data)
    if not num_storages and not num_buffers:
        return pickle.loads(memoryview(data)[_ALONE.size :])
    view = memoryview(bytearray(data) if num_storages else data)[_ALONE.size :]
    table_nbytes = PLACE.size * (num_storages + num_buffers)
    return decode(view[:table_nbytes], num_storages, stream_nbytes, view[table_nbytes:], None)


class _Loading(threading.local):
    """The storages of the stream being read, for `_tensor` and `_storage` of this thread."""

    storages: Sequence[tuple[torch.UntypedStorage, int]] = ()


_loading = _Loading()


def decode(
    table: memoryview,
    num_storages: int,
    stream_nbytes: int,
    blob: memoryview,
    lender: Lender | None,
    copies: bool = False,
) -> object:
    """Return the batch that `encode` took. Raises what unpickling raises.

    blob: pickle stream, then what lies inline, in the table's order; it may be overwritten once
    this returns. lender: the arena's bookkeeping here; copies: put everything into ordinary memory,
    for a trainer that already holds all the shared memory it may.
    """
    storages: list[tuple[torch.UntypedStorage, int]] = []
    buffers: list[memoryview] = []
    position = stream_nbytes
    for number, (offset, nbytes, first) in enumerate(PLACE.iter_unpack(table)):
        if offset != INLINE:
            assert lender is not None
            view = lender.lend(offset, nbytes)
        else:
            view = blob[position : position + nbytes]
            position += nbytes
        owned = offset == INLINE or copies
        if number < num_storages:
            storages.append((_copied(view) if owned else _showing(view), first))
        else:
            buffers.append(memoryview(bytearray(view)) if owned else view)
    before, _loading.storages = _loading.storages, storages
    try:
        return pickle.loads(blob[:stream_nbytes], buffers=buffers)
    finally:
        _loading.storages = before


def _copied(view: memoryview) -> torch.UntypedStorage:
    storage = torch.UntypedStorage(len(view))
    if len(view):
        address = ctypes.addressof(ctypes.c_char.from_buffer(view))
        ctypes.memmove(storage.data_ptr(), address, len(view))
    return storage


def _showing(view: memoryview) -> torch.UntypedStorage:
    return torch.frombuffer(view, dtype=torch.uint8).untyped_storage()


def _tensor(
    number: int, dtype_number: int, offset: int, size: tuple[int, ...], stride: tuple[int, ...]
) -> torch.Tensor:
    storage, first = _loading.storages[number]
    dtype = _DTYPES[dtype_number]
    if first:
        offset -= first // dtype.itemsize
    return torch.empty(0, dtype=dtype, device="cpu").set_(storage, offset, size, stride)


def _storage(number: int) -> torch.UntypedStorage:
    return _loading.storages[number][0]
