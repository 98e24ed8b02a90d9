"""Memory that others may change has no fingerprint for samples that are remembered, and a mapped file one
of all of it."""

import ctypes
import functools
import math
import mmap
import multiprocessing
import os
import types
from pathlib import Path

import numpy as np
import pytest
import torch

from stoker.clock import Deadline
from stoker.fingerprint import fingerprint as module
from stoker.fingerprint.fingerprint import Apart, Unwatchable
from stoker.fingerprint.mapped import END_NBYTES

NBYTES = 4 * END_NBYTES
HEAP = multiprocessing.RawArray("b", 1)  # a process keeps the memory that these are of


def told(value):
    return module.fingerprint({"value": value}, Deadline(30), apart=Apart())


@pytest.fixture
def file(tmp_path):
    made = tmp_path / "tokens"
    made.write_bytes(np.random.default_rng(0).bytes(NBYTES))
    return made


# -- shared memory -------------------------------------------------------------------------------------


@pytest.fixture
def shared():
    """As sharedctypes makes it."""
    return multiprocessing.RawArray("f", 8)


def as_it_is(shared):
    return shared


def frombuffer(shared):
    return np.frombuffer(shared, np.float32)


def read_only(shared):
    view = np.frombuffer(shared, np.float32)
    view.setflags(write=False)
    return view


def a_slice_of_a_slice(shared):
    return np.frombuffer(shared, np.float32)[1:][::-2].reshape(1, -1)


def by_ctypeslib(shared):
    return np.ctypeslib.as_array(shared)


def a_memoryview(shared):
    return memoryview(shared)


def an_array_of_a_memoryview(shared):
    return np.asarray(memoryview(shared).cast("B"))


def a_ctypes_array_of_it(shared):
    return (ctypes.c_float * 4).from_buffer(shared, 16)


def a_part_of_a_ctypes_array(shared):
    return (ctypes.c_float * 2 * 4).from_buffer(shared)[1]


def from_numpy(shared):
    return torch.from_numpy(np.frombuffer(shared, np.float32))


def torchs_frombuffer(shared):
    return torch.frombuffer(shared, dtype=torch.float32)[2:]


def numpy_of_a_tensor(shared):
    return torch.frombuffer(shared, dtype=torch.float32).numpy()


def numpy_of_a_shared_tensor(shared):
    return torch.zeros(8).share_memory_().numpy()


def a_shared_mapping(shared):
    return np.frombuffer(mmap.mmap(-1, 64, prot=mmap.PROT_READ), np.uint8)


def a_locked_array(shared):
    return multiprocessing.Array("f", 8)


SHARED = [
    as_it_is, frombuffer, read_only, a_slice_of_a_slice, by_ctypeslib, a_memoryview, an_array_of_a_memoryview,
    a_ctypes_array_of_it, a_part_of_a_ctypes_array, from_numpy, torchs_frombuffer, numpy_of_a_tensor,
    numpy_of_a_shared_tensor, a_shared_mapping, a_locked_array,
]  # fmt: skip


class Holder:
    def __init__(self, value):
        self.value = value


def closure(value):
    return lambda: value


def global_of_a_function(value):
    return types.FunctionType((lambda: shown).__code__, {"shown": value})  # noqa: F821 - its global


PLACES = [
    lambda value: value, lambda value: [1, {"key": (value,)}], Holder, closure, global_of_a_function,
    lambda value: functools.partial(print, value),
]  # fmt: skip


@pytest.mark.parametrize("form", SHARED)
def test_shared_memory_has_none_wherever_it_is(form, shared):
    value = form(shared)
    for place in PLACES:
        with pytest.raises(Unwatchable):
            told(place(value))


def test_memory_of_ones_own_has_one():
    own = [
        np.arange(8), np.arange(8)[::2], np.frombuffer(bytes(8), np.uint8), np.asarray(memoryview(bytearray(8))),
        torch.arange(8), torch.from_numpy(np.arange(8)), torch.arange(8).numpy(), (ctypes.c_int * 3)(1, 2, 3),
        torch.frombuffer(bytearray(8), dtype=torch.uint8), np.zeros(1 << 22, np.uint8)[3:].view(np.int8),
    ]  # fmt: skip
    for value in own:
        assert told(value) == told(value)


def test_many_arrays_that_hold_no_memory_themselves_take_one_look(monkeypatch):
    looks = []
    found = module.data.not_private
    monkeypatch.setattr(module.data, "not_private", lambda: looks.append(1) or found())
    told([torch.from_numpy(np.full(3, k)) for k in range(200)])
    assert looks == [1]


# -- mapped files --------------------------------------------------------------------------------------


def rewritten(file):
    """Its middle, without a trace but the time of status."""
    times = file.stat().st_atime_ns, file.stat().st_mtime_ns
    with file.open("r+b") as opened:
        opened.seek(NBYTES // 2)
        opened.write(b"other")
    os.utime(file, ns=times)


def touched(file):
    file.chmod(0o600)


def linked(file):
    """To another name, which a status notes too."""
    os.link(file, f"{file}.too")


CHANGES = [rewritten, touched, linked]


def by_memmap(file):
    return np.memmap(file, np.uint16, "r")


def by_load(file):
    np.save(f"{file}.npy", np.fromfile(file, np.uint16))
    Path(f"{file}.npy").replace(file)
    return np.load(file, mmap_mode="r")


def by_mmap(file):
    with file.open("rb") as opened:
        return mmap.mmap(opened.fileno(), 0, prot=mmap.PROT_READ)


def a_view_of_one(file):
    return [np.asarray(by_memmap(file))[100:200]]


@pytest.mark.parametrize("form", [by_memmap, by_load, by_mmap, a_view_of_one])
@pytest.mark.parametrize("change", CHANGES)
def test_a_mapped_file_is_known_by_all_of_it(change, form, file):
    value = form(file)
    before = told(value)
    assert told(value) == before
    change(file)
    assert told(value) != before


@pytest.mark.parametrize("form", [by_memmap, by_mmap, a_view_of_one])
@pytest.mark.parametrize("keeps_time", [False, True])
def test_a_mapped_file_that_was_replaced_has_none(form, keeps_time, file):
    value, content, status = form(file), file.read_bytes(), file.stat()
    told(value)
    file.unlink()
    file.write_bytes(content)
    if keeps_time:
        os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    with pytest.raises(Unwatchable):
        told(value)


def test_a_mapped_file_in_memory_has_none():
    path = Path(f"/dev/shm/mapped-by-a-test-{os.getpid()}")  # not another process's leak
    path.write_bytes(bytes(100))
    try:
        with pytest.raises(Unwatchable):
            told(by_memmap(path))
    finally:
        path.unlink()


@pytest.mark.filterwarnings("ignore:The given NumPy array is not writable")
@pytest.mark.parametrize("mode", ["r", "c"])
def test_a_tensor_of_a_mapped_file_has_none(mode, file):
    value = torch.from_numpy(np.memmap(file, np.uint8, mode))
    with pytest.raises(Unwatchable):
        told(value)


def test_another_machine_knows_a_mapped_file_by_what_it_sees_too(file):
    """Where inode and time of status are others."""
    value = by_memmap(file)
    before = module.fingerprint({"value": value}, Deadline(30), limit_nbytes=math.inf)
    touched(file)
    assert module.fingerprint({"value": value}, Deadline(30), limit_nbytes=math.inf) == before
