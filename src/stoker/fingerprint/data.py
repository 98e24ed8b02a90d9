"""Hashes data: containers, arrays, tensors, generators of random numbers.

Promise: by content; a mapped file by its FileRange, for it may be larger than memory. For samples that
are remembered (`walker.apart`) also by its Stamp, and no other memory that others may write is hashed.
"""

import bisect
import ctypes
import io
import itertools
import mmap
import os
import pickle
import random
import re
import sys
from collections.abc import Collection
from typing import Any, NoReturn

import torch

from stoker.fingerprint.mapped import address_of, file_of, mapping_of, not_private, stamp_of
from stoker.fingerprint.walker import BY_REPR, LARGE_NBYTES, Unwatchable, Walker
from stoker.fingerprint.written import BLOCK_NBYTES
from stoker.trusted import is_librarys

CHUNK_NBYTES = 1 << 20  # hashed between two looks at the clock: about 1 ms
# A container of so many items is first tried by C code, in pieces of as many as take about 1 ms:
# a list of 50,000 (path, label) pairs takes 12 ms so and 300 ms item by item.
# Measured: tests/unit/fingerprint/test_fingerprint.py prints both
NUM_BULK, NUM_PIECE = 64, 4096


def sequence(walker: Walker, value: Any, path: str) -> None:
    walker.put(b"n", f"{len(value)} {getattr(value, 'maxlen', '')}".encode())
    if not _put_bulk(walker, value, path):
        walker.walk_all(value, path)
    walker.walk_subclass(value, path)


def table(walker: Walker, value: Any, path: str) -> None:
    walker.put(b"n", str(len(value)).encode())
    if not _put_bulk(walker, value.items(), path):
        for key, item in value.items():
            walker.walk(key, f"{path} key")
            walker.walk(item, f"{path}[{key!r}]" if isinstance(key, (str, int)) else path)
    walker.walk_subclass(value, path)
    walker.walk(getattr(value, "default_factory", None), f"{path}.default_factory")


def _put_bulk(walker: Walker, items: Collection[object], path: str) -> bool:
    """Hash many items at once. Returns False if one of them is not plain, at whatever depth."""
    if len(items) < NUM_BULK:
        return False
    iterator = iter(items)
    while piece := list(itertools.islice(iterator, NUM_PIECE)):
        walker.look_at_clock(path, now=True)
        plain = _as_plain(piece)
        if plain is None:
            return False  # what was hashed so far is hashed again: the same in every walk
        walker.put(b"p", plain)
    return True


def unordered(walker: Walker, value: Any, path: str) -> None:
    if not all(map(_has_hash_of_content, value)):
        raise Unwatchable(f"{path}: a set of objects has no order to compare by")
    walker.walk_all(value, path)  # in the order that code sees, which hashes decide
    walker.walk_subclass(value, path)


def _has_hash_of_content(item: Any) -> bool:
    """Whether what decides its place in a set is its content, and not where it lies in memory."""
    kind = type(item)
    if kind is tuple or kind is frozenset:
        return all(map(_has_hash_of_content, item))
    return kind is str or kind is bytes or kind in BY_REPR


class _NotPlain(Exception):
    """A value that C code cannot hash by content."""


class _Plain(pickle.Pickler):
    """Pickles str, bytes, numbers, None and list, tuple, dict, set of these; nothing else."""

    def reducer_override(self, value: object) -> NoReturn:
        raise _NotPlain


def _as_plain(items: list[object]) -> memoryview | None:
    buffer = io.BytesIO()
    pickler = _Plain(buffer, protocol=4)
    pickler.fast = True  # no memo: bytes depend on values alone, and a cycle is too deep
    try:
        pickler.dump(items)
    except (_NotPlain, RecursionError, ValueError):  # the last: a cycle
        return None
    return buffer.getbuffer()


def array(walker: Walker, value: Any, path: str) -> None:
    walker.put(b"a", f"{value.dtype} {value.shape} {value.strides}".encode())
    if walker.apart is not None:
        walker.apart.memory.append(_bounds_of(value))
    shown = mapping_of(value)
    if shown is not None and value.flags.writeable:
        raise Unwatchable(f"{path}: a mapped file or shared memory that may be written")
    walker.walk_subclass(value, path)
    if value.dtype.hasobject:
        items = value.ravel().tolist()
        if not _put_bulk(walker, items, path):
            walker.walk_all(items, path)
    elif shown is not None:
        _put_mapped(walker, value, shown, path)
    else:
        walker.weigh(value.nbytes, path)
        if not _is_own(value):
            _refuse_shared(walker, _bounds_of(value), path)
        address = value.__array_interface__["data"][0]
        if not value.flags.c_contiguous or not _put_pages(walker, address, value.nbytes):
            _put_array(walker, value, path)


def _bounds_of(value: Any) -> tuple[int, int]:
    """Return where an array's bytes begin and end; its strides may be negative."""
    low = high = int(value.__array_interface__["data"][0])
    if value.size == 0:
        return low, low
    for length, stride in zip(value.shape, value.strides, strict=True):
        reach = (length - 1) * stride
        low, high = low + min(reach, 0), high + max(reach, 0)
    return low, high + int(value.itemsize)


def _is_own(value: Any) -> bool:
    """Whether an array's bytes are NumPy's own, or an object's that cannot be written."""
    while type(value.base).__module__ == "numpy":
        value = value.base
    return bool(value.flags.owndata) or type(value.base) is bytes


def _refuse_shared(walker: Walker, bounds: tuple[int, int], path: str) -> None:
    if walker.apart is None:
        return
    if walker.apart.not_private is None:
        walker.apart.not_private = not_private()
    before = bisect.bisect_left(walker.apart.not_private, (bounds[1], 0))
    if before and walker.apart.not_private[before - 1][1] > bounds[0]:
        raise Unwatchable(f"{path}: memory of a file, or that other processes may change")


def borrowed(walker: Walker, value: Any, path: str) -> None:
    """Hash an object of ctypes that has memory of its own."""
    if not value._b_needsfree_:
        raise Unwatchable(f"{path}: memory that something else holds, as shared memory")
    walker.walk(value.__reduce__()[1:], path)  # raises of pointers


def _put_mapped(walker: Walker, value: Any, shown: mmap.mmap, path: str) -> None:
    """Hash a mapped array by its file, or by its address if no other machine could have it."""
    address = value.__array_interface__["data"][0]
    if file_of(shown) is None and walker.apart is None:
        walker.put(b"m", str(address).encode())
    else:
        walker.walk(shown, path)
        walker.put(b"m", str(address - address_of(shown)).encode())


def mapping(walker: Walker, value: mmap.mmap, path: str) -> None:
    file = file_of(value)
    if file is None:
        raise Unwatchable(
            f"{path}: shared memory, or a mapped file that may be written or was replaced"
        )
    if walker.apart is not None:
        stamp = stamp_of(value)
        if stamp is None:
            raise Unwatchable(f"{path}: a mapped file in memory, which may be written unseen")
        walker.put(b"m", repr(stamp).encode())
    walker.put(b"m", repr((file, value.tell())).encode())


def _put_array(walker: Walker, value: Any, path: str) -> None:
    """Hash an array's bytes, a row at a time if a flat view would need a copy."""
    if value.nbytes <= CHUNK_NBYTES or value.ndim == 0:
        walker.put(b"d", value.tobytes())
    elif value.flags.c_contiguous:
        _put_chunks(walker, value.reshape(-1).view("u1").data, path)
    else:
        for row in value:
            _put_array(walker, row, path)


def tensor(walker: Walker, value: torch.Tensor, path: str) -> None:
    if value.layout is not torch.strided or value.device.type != "cpu":
        raise Unwatchable(f"{path}: a {value.layout} tensor on {value.device}")
    told = value.dtype, *value.shape, value.requires_grad, value.is_conj(), value.is_neg()
    walker.put(b"t", repr(told).encode())
    walker.walk_subclass(value, path)
    walker.weigh(value.nbytes, path)
    plain = value.detach().as_subclass(torch.Tensor)
    memory = plain.untyped_storage()
    if walker.shared is not None and walker.shared.holds(memory):
        walker.put(b"t", f"{plain.storage_offset()} {plain.stride()}".encode())
        return
    if value.is_shared():
        plain = _copied(walker, plain, path)
        memory = plain.untyped_storage()
    bounds = memory.data_ptr(), memory.data_ptr() + memory.nbytes()
    if not memory.resizable():  # not torch's own
        _refuse_shared(walker, bounds, path)
    if walker.apart is not None:
        walker.apart.memory.append(bounds)
    if _put_pages(walker, memory.data_ptr(), memory.nbytes()):
        walker.put(b"t", f"{plain.storage_offset()} {plain.stride()}".encode())
        return
    if not plain.is_contiguous():
        if plain.nbytes > LARGE_NBYTES:
            raise Unwatchable(f"{path}: a large tensor that is not contiguous")
        plain = plain.contiguous()
    _put_memory(walker, plain.reshape(-1).view(torch.uint8), path)


def _copied(walker: Walker, value: torch.Tensor, path: str) -> torch.Tensor:
    """Return a copy of a tensor that other processes may change: whoever asked compares it from now on."""
    memory = value.untyped_storage()
    copy = None if walker.apart is None else walker.apart.shared.add(memory)
    if walker.apart is None or copy is None:
        raise Unwatchable(f"{path}: a tensor that other processes may change")
    walker.apart.memory.append((memory.data_ptr(), memory.data_ptr() + memory.nbytes()))
    shown = torch.empty(0, dtype=value.dtype)
    return shown.set_(copy.untyped_storage(), value.storage_offset(), value.shape, value.stride())


def _put_pages(walker: Walker, address: int, nbytes: int) -> bool:
    """Watch a large block by page; hash what is beside its whole pages. Returns whether it is."""
    if walker.pages is None or nbytes < BLOCK_NBYTES:
        return False
    pages = walker.pages.cover(address, nbytes)
    if pages is None:
        return False
    walker.put(b"w", f"{address} {nbytes}".encode())
    walker.put(b"d", ctypes.string_at(address, pages[0] - address))
    walker.put(b"d", ctypes.string_at(pages[1], address + nbytes - pages[1]))
    return True


def _put_memory(walker: Walker, flat: torch.Tensor, path: str) -> None:
    """Hash a tensor's bytes without NumPy, which torch may lack."""
    if flat.nbytes <= CHUNK_NBYTES:
        walker.put(b"d", ctypes.string_at(flat.data_ptr(), flat.nbytes))
    else:
        memory = (ctypes.c_ubyte * flat.nbytes).from_address(flat.data_ptr())
        _put_chunks(walker, memoryview(memory), path)


def _put_chunks(walker: Walker, flat: memoryview, path: str) -> None:
    for start in range(0, len(flat), CHUNK_NBYTES):
        walker.look_at_clock(path, now=True)
        walker.put(b"d", flat[start : start + CHUNK_NBYTES])


def scalar(walker: Walker, value: Any, path: str) -> None:
    if value.dtype.hasobject:
        raise Unwatchable(f"{path}: a record of NumPy's that holds objects")
    walker.put(b"x", f"{value.dtype}".encode() + value.tobytes())
    walker.walk_subclass(value, path)


def span(walker: Walker, value: slice, path: str) -> None:
    walker.walk_all((value.start, value.stop, value.step), path)


def pattern(walker: Walker, value: "re.Pattern[Any]", path: str) -> None:
    """Hash a regular expression whole: its text cuts it off."""
    walker.walk_all((value.pattern, value.flags), path)


def generator(walker: Walker, value: Any, path: str) -> None:
    if all(value is not known for known in _global_generators()):
        walker.walk_subclass(value, path)
        if walker.apart is not None:
            walker.apart.generators.append(value)
            return
        walker.walk(state_of(value), f"{path} state")


def _global_generators() -> list[object]:
    numpy = sys.modules.get("numpy")
    found: list[object] = [random._inst, torch.default_generator]
    if numpy is not None:
        found += [numpy.random.mtrand._rand, numpy.random.mtrand._rand._bit_generator]
    return found


def state_of(generator: Any) -> object:
    """Return the state of a generator of Python's, torch's or NumPy's."""
    if isinstance(generator, random.Random):
        return generator.getstate()
    if isinstance(generator, torch.Generator):
        state = generator.get_state()
        return ctypes.string_at(state.data_ptr(), state.nbytes)
    if hasattr(generator, "bit_generator"):
        return generator.bit_generator.state
    if hasattr(generator, "get_state"):
        return generator.get_state(legacy=False)
    return generator.state


def of_polars(walker: Walker, value: Any, path: str) -> None:
    """Hash a table of polars by its columns, and a column by its bytes."""
    _refuse_subclass(value, path)
    walker.meets_polars = True
    if hasattr(value, "get_columns"):
        walker.walk_all(value.get_columns(), path)
        return
    nbytes = value.estimated_size()
    if nbytes > LARGE_NBYTES:
        raise Unwatchable(f"{path}: a column of {nbytes:,} bytes")
    walker.walk(value.__getstate__(), path)


def of_h5py(walker: Walker, value: Any, path: str) -> None:
    """Hash an open file of HDF5, or what lies in it, by which file it is: of what is read through it then, a
    worker notes the file (memory/watch/readers.py). HDF5 keeps others from writing to what is open."""
    _refuse_subclass(value, path)
    file: Any = value.file if value else None
    is_fixed = (
        file is not None and file.mode == "r" and file.driver == "sec2" and not file.swmr_mode
    )
    if not is_fixed or walker.apart is None:
        raise Unwatchable(f"{path}: a file of HDF5 that may be written, or is closed")
    status = os.fstat(file.id.get_vfd_handle())
    walker.put(b"h", repr((file.filename, value.name, status.st_ino, status.st_dev)).encode())


def _refuse_subclass(value: Any, path: str) -> None:
    kind = type(value)
    if not is_librarys(kind):
        raise Unwatchable(f"{path}: a {kind.__module__}.{kind.__qualname__}")
