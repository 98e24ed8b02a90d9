"""Patches torch and glibc in a worker, so that batches and samples use memory that is touched.

Promise: only where memory comes from changes, never a value.
"""

import ctypes
import mmap
import threading
from typing import Protocol

import torch

from stoker.wire.arena import Heap
from stoker.wire.batch_codec import LARGE_NBYTES

_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD = -1, -2, -3  # glibc malloc.h
_MMAP_THRESHOLD_NBYTES = 1 << 30  # image and video tensors stay below
_TOP_PAD_NBYTES = 16 << 20
_HUGE_HEAP_NBYTES = 256 << 20  # address space: only what is touched exists
_HUGE_PAGE_NBYTES = 2 << 20
_HUGE_BATCH_NBYTES = 8 << 20  # smaller ones are made of samples that fit the caches


_libc = ctypes.CDLL(None)  # opened before any fork: dlopen takes locks


def tune_allocator() -> None:
    """Keep the heap of this process mapped.

    By default glibc maps and unmaps every block over 128 KB: each decoded image pays for fresh
    pages again. Measured: benchmarks/images.py, benchmarks/clips.py. A libc without mallopt is
    left as it is.
    """
    mallopt = getattr(_libc, "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _MMAP_THRESHOLD_NBYTES)
        mallopt(_M_TRIM_THRESHOLD, _MMAP_THRESHOLD_NBYTES)
        mallopt(_M_TOP_PAD, _TOP_PAD_NBYTES)


def end_of_heap() -> int:
    """Return the address behind the heap; 0 if the libc has none of this kind."""
    if not all(hasattr(_libc, name) for name in ("sbrk", "malloc_trim", "madvise")):
        return 0
    _libc.sbrk.restype = ctypes.c_void_p
    return int(_libc.sbrk(ctypes.c_ssize_t(0)) or 0)


def use_huge_pages(start: int) -> None:
    """Use huge pages for the heap from `start` on, if the system leaves that to programs.

    Large samples touch a page every 4 KB otherwise, and the processor looks each one up, in a
    virtual machine twice. What is free goes back to the system first, to return as huge pages.
    Measured: docs/decisions/008-huge-pages.md
    """
    if not start:
        return
    _libc.malloc_trim(ctypes.c_size_t(0))
    _libc.malloc.restype = ctypes.c_void_p
    _libc.free(ctypes.c_void_p(_libc.malloc(ctypes.c_size_t(_HUGE_HEAP_NBYTES))))
    start, end = -(-start // _HUGE_PAGE_NBYTES) * _HUGE_PAGE_NBYTES, end_of_heap()
    if start < end:
        _libc.madvise(ctypes.c_void_p(start), ctypes.c_size_t(end - start), mmap.MADV_HUGEPAGE)


class HasHeap(Protocol):
    heap: Heap | None


def allocate_batches_in_arena(worker: HasHeap) -> None:
    """Let default_collate write large batches straight into the worker's arena, once it has one.

    The first such batch shows that samples are large, and so calls `use_huge_pages`.

    Replaces UntypedStorage._new_shared, which collate calls in a worker
    (torch/utils/data/_utils/collate.py `collate_tensor_fn`, 2.13).
    """
    original = torch.UntypedStorage._new_shared
    heap_start: int | None = end_of_heap()  # None: it is made of huge pages already
    owner = threading.get_ident()  # a heap belongs to one thread; the dataset may have others

    def _new_shared(
        cls: type[torch.UntypedStorage], size: int, *, device: object = "cpu"
    ) -> torch.UntypedStorage:
        if torch.device(device).type != "cpu":  # type: ignore[call-overload]  # as torch's
            made: torch.UntypedStorage = original(size, device=device)  # type: ignore[no-untyped-call]
            return made
        nonlocal heap_start
        if size >= _HUGE_BATCH_NBYTES and heap_start is not None:
            use_huge_pages(heap_start)
            heap_start = None
        heap = worker.heap if threading.get_ident() == owner else None
        view = heap.allocate(size) if heap is not None and size >= LARGE_NBYTES else None
        if view is None:
            return torch.UntypedStorage(size)
        return torch.frombuffer(view, dtype=torch.uint8).untyped_storage()

    torch.UntypedStorage._new_shared = classmethod(_new_shared)  # type: ignore[method-assign,assignment]
