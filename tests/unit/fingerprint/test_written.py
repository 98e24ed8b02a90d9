"""Large blocks are watched by page: any write to them is seen, whoever writes."""

import contextlib
import ctypes
import gc
import logging
import mmap
import os
import threading
from pathlib import Path

import numpy as np
import pytest
import torch

from stoker.clock import Deadline
from stoker.fingerprint import written
from stoker.fingerprint.fingerprint import Unwatchable, fingerprint
from stoker.fingerprint.written import BLOCK_NBYTES, WrittenPages, written_pages

NBYTES = 8 * BLOCK_NBYTES


@pytest.fixture
def pages(monkeypatch):
    monkeypatch.setattr(written, "_living", None)  # an earlier test's loader may still hold some
    found = written_pages()
    if found is None:
        pytest.skip("this kernel or sandbox has no asynchronous userfaultfd (Linux 6.7)")
    yield found
    found.close()


def looker(value, pages):
    return lambda: fingerprint({"value": value}, Deadline(None), pages=pages)


def kernel_writes(t):
    with Path("/dev/zero").open("rb", buffering=0) as file:
        file.readinto(memoryview(t.numpy())[5_000_000:5_000_010])


def thread_writes(t):
    thread = threading.Thread(target=lambda: t[5_000_001].fill_(3))
    thread.start()
    thread.join()


WRITES = {
    "torch": lambda t: t[5_000_000].fill_(7),
    "the same value": lambda t: t[5_000_000].copy_(t[5_000_000].clone()),
    "an alias past the version counter": lambda t: t.data[5_000_000].fill_(7),
    "numpy": lambda t: t.numpy().__setitem__(5_000_000, 7),
    "ctypes": lambda t: ctypes.memset(t.data_ptr() + 5_000_000, 7, 1),
    "the kernel": kernel_writes,
    "another thread": thread_writes,
    "the first byte": lambda t: t[0].fill_(7),
    "the last byte": lambda t: t[-1].fill_(7),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_a_write_to_a_large_tensor_changes_the_fingerprint(pages, write):
    tensor = torch.ones(NBYTES + 100, dtype=torch.uint8)
    look = looker(tensor, pages)
    before = look()
    assert look() == before and bool(tensor.sum())  # reading changes nothing
    write(tensor)
    after = look()
    assert after != before and look() == after
    write(tensor)
    write(tensor)
    edge = {WRITES["the first byte"]: 0, WRITES["the last byte"]: -1}.get(write, 5_000_000)
    address = tensor[edge].data_ptr()
    # Outside of whole pages it is hashed, and the same: a tensor may begin or end with a page by chance.
    is_hashed = not any(start <= address < end for start, end in pages._blocks)
    assert (look() == after) is is_hashed


@pytest.mark.parametrize(
    "made",
    [
        lambda: torch.ones(NBYTES),
        lambda: torch.ones(2048, 2048).t(),  # not contiguous
        lambda: torch.ones(NBYTES)[1000 : NBYTES // 2],
        lambda: np.ones(NBYTES),
        lambda: {"x": [torch.ones(NBYTES), np.ones(NBYTES, np.uint8)]},
    ],
)
def test_what_is_not_written_to_stays_and_is_not_read(pages, made):
    value = made()
    look = looker(value, pages)
    assert look() == look()
    num_blocks = len(pages._blocks)
    assert num_blocks and look() == look() and len(pages._blocks) == num_blocks


def test_views_of_one_tensor_are_one_block(pages):
    tensor = torch.ones(NBYTES, dtype=torch.uint8)
    look = looker([tensor, tensor[10:], tensor.view(2, -1)], pages)
    before = look()
    assert len(pages._blocks) == 1
    tensor[77] = 2
    assert look() != before


def test_memory_that_was_given_back_and_mapped_anew_counts_as_written(pages):
    memory = mmap.mmap(-1, NBYTES)
    array = np.frombuffer(memory, np.uint8)
    address = array.__array_interface__["data"][0]
    assert pages.cover(address, NBYTES)
    pages.look()
    number = pages.number
    pages.look()
    assert pages.number == number
    libc = ctypes.CDLL(None)
    libc.mmap.restype = libc.mmap.argtypes = None
    fixed, anonymous, private, read_write = 0x10, 0x20, 0x02, 3
    libc.mmap(
        ctypes.c_void_p(address), ctypes.c_size_t(NBYTES), read_write,
        fixed | anonymous | private, -1, ctypes.c_long(0),
    )  # fmt: skip
    pages.look()
    assert pages.number > number and not pages._blocks


def test_a_forked_copy_watches_for_itself(pages):
    tensor = torch.ones(NBYTES, dtype=torch.uint8)
    look = looker(tensor, pages)
    before = look()
    pid = os.fork()
    if pid == 0:
        own = written_pages()
        own_look = looker(tensor, own)
        first = own_look()
        tensor[5] = 9
        os._exit(0 if own is not pages and own_look() != first else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert look() == before


def test_its_descriptors_end_with_it():
    def opened():
        found = set()
        for file in Path("/proc/self/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):  # the folder's own
                found.add(str(file.readlink()))
        return found

    gc.collect()
    found = written_pages()
    if found is None:
        pytest.skip("none to be had here")
    assert "anon_inode:[userfaultfd]" in opened()
    assert written_pages() is found
    found.close()
    assert "anon_inode:[userfaultfd]" not in opened()


def test_where_the_kernel_refuses_blocks_are_read(monkeypatch):
    def refused(self):
        raise PermissionError("as in a container")

    monkeypatch.setattr(WrittenPages, "__init__", refused)
    monkeypatch.setattr(WrittenPages, "__del__", lambda self: None)
    gc.collect()
    assert written_pages() is None
    tensor = torch.ones(NBYTES, dtype=torch.uint8)
    look = looker(tensor, None)
    before = look()
    tensor[5_000_000] = 3
    assert look() != before


# -- what else beginners' scripts reach ------------------------------------------------------------

log = logging.getLogger("of a test")
made_ufunc = np.frompyfunc(lambda x: x + 1, 1, 1)


def logs(x):
    log.debug("a sample")
    return x


class Adds:
    add = np.add


def test_a_loggers_level_counts_and_its_handlers_do_not(caplog):
    look = looker(logs, None)
    before = look()
    assert log.isEnabledFor(logging.DEBUG) in (True, False)  # which it keeps in a cache
    assert look() == before
    log.addHandler(logging.NullHandler())
    assert look() == before
    level = log.level
    log.setLevel(logging.ERROR)
    assert look() != before
    log.setLevel(level)


def test_numpys_ufuncs_are_known_by_name_and_others_are_not():
    look = looker(Adds(), None)
    assert look() == look()
    with pytest.raises(Unwatchable, match="not NumPy's"):
        looker([made_ufunc], None)()


def test_functions_of_pybind11_are_known_by_name():
    found = torch._C._get_tracing_state
    assert type(found.__self__).__name__.startswith(("PyCapsule", "pybind11_detail"))
    assert looker([found], None)() == looker([found], None)()
