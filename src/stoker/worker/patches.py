"""torch's and glibc's names on the worker's side.

Promise: only where memory comes from changes, never a value.
"""

import ctypes
import threading
from typing import Protocol

import torch

from stoker.wire.batch_codec import LARGE_NBYTES
from stoker.wire.slabs import Heap

_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD = -1, -2, -3  # glibc malloc.h
_MMAP_THRESHOLD_NBYTES = 1 << 30  # image and video tensors stay below
_TOP_PAD_NBYTES = 16 << 20


def tune_allocator() -> None:
    """Keep the heap of this process mapped.

    By default glibc maps and unmaps every block over 128 KB: each decoded image pays for fresh
    pages again. Measured: benchmarks/images.py, benchmarks/clips.py. A libc without mallopt is
    left as it is.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _MMAP_THRESHOLD_NBYTES)
        mallopt(_M_TRIM_THRESHOLD, _MMAP_THRESHOLD_NBYTES)
        mallopt(_M_TOP_PAD, _TOP_PAD_NBYTES)


class HasHeap(Protocol):
    heap: Heap | None


def give_birth_in(worker: HasHeap) -> None:
    """Let default_collate write large batches straight into the worker's arena, once it has one.

    Replaces UntypedStorage._new_shared, which collate calls in a worker
    (torch/utils/data/_utils/collate.py `collate_tensor_fn`, 2.13).
    """
    original = torch.UntypedStorage._new_shared
    owner = threading.get_ident()  # a heap belongs to one thread; the dataset may have others

    def _new_shared(
        cls: type[torch.UntypedStorage], size: int, *, device: object = "cpu"
    ) -> torch.UntypedStorage:
        if torch.device(device).type != "cpu":  # type: ignore[call-overload]  # as torch's
            made: torch.UntypedStorage = original(size, device=device)  # type: ignore[no-untyped-call]
            return made
        heap = worker.heap if threading.get_ident() == owner else None
        view = heap.allocate(size) if heap is not None and size >= LARGE_NBYTES else None
        if view is None:
            return torch.UntypedStorage(size)
        return torch.frombuffer(view, dtype=torch.uint8).untyped_storage()

    torch.UntypedStorage._new_shared = classmethod(_new_shared)  # type: ignore[method-assign,assignment]
