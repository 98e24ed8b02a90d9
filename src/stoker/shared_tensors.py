"""Tells whether tensors in shared memory still hold what they held, by copies.

Where a dataset is pickled for its workers torch puts its tensors into shared memory: the loop and all
workers of this machine see what one of them writes. Of other machines' workers each has its own.
"""

import ctypes
from collections.abc import Iterable
from typing import Any

import torch

# Of all together, which are compared before each batch, or sample, in 0.05 ms; a small one takes about as
# long as LEAST_NBYTES.
MAX_NBYTES, LEAST_NBYTES = 1 << 20, 16 << 10

_memcmp = ctypes.CDLL(None).memcmp  # torch.equal takes 17 times as long
_memcmp.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]


class SharedTensors:
    """Storages of tensors, with what they held when they were added. It is pickled with the storages
    that were noted while a job was pickled, and is made anew from these: behind all that has them."""

    def __init__(self, storages: Iterable[torch.UntypedStorage] = ()) -> None:
        self._noted: dict[int, torch.UntypedStorage] = {}  # by address
        self._copies: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}  # bytes, and a copy of them
        self._nbytes = 0
        for storage in storages:
            self.note(storage)
        self.add_noted()

    def __reduce__(self) -> Any:
        return SharedTensors, (list(self._noted.values()),)

    def note(self, storage: torch.UntypedStorage) -> None:
        self._noted[storage.data_ptr()] = storage

    def add_noted(self) -> None:
        for storage in self._noted.values():
            self.add(storage)

    def add(self, storage: torch.UntypedStorage) -> torch.Tensor | None:
        """Return a copy of a storage's bytes, which is compared from now on; None if they are too many."""
        if storage.data_ptr() in self._copies:
            return self._copies[storage.data_ptr()][1]
        self._nbytes += max(storage.nbytes(), LEAST_NBYTES)
        if self.are_too_many:
            return None
        now = torch.empty(0, dtype=torch.uint8).set_(storage)
        copy = now.clone()
        self._copies[storage.data_ptr()] = now, copy
        return copy

    def holds(self, storage: torch.UntypedStorage) -> bool:
        """Whether a storage is compared."""
        return not self.are_too_many and storage.data_ptr() in self._copies

    @property
    def are_too_many(self) -> bool:
        return self._nbytes > MAX_NBYTES

    @property
    def is_as_it_was(self) -> bool:
        same = (
            _memcmp(now.data_ptr(), copy.data_ptr(), copy.nbytes) == 0
            for now, copy in self._copies.values()
        )
        return not self.are_too_many and all(same)
