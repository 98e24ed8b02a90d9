"""Copies an object as it is now, so that a process can be started from the copy later.

Promise: what other processes share with it (tensors in shared memory or on a device, locks and
queues of multiprocessing) stays shared with the thawed object, and is not copied.
"""

import io
import pickle
from typing import Any

import torch

_SHARED_FROM = ("multiprocessing.", "torch.multiprocessing.")


class TooLarge(Exception):
    """Raised if a copy would take more bytes than it may."""


class Frozen:
    """A copy of a picklable value. Raises TooLarge, and whatever pickling the value raises."""

    def __init__(self, value: object, limit_nbytes: int) -> None:
        self._shared: list[Any] = []
        file = _Bounded(limit_nbytes)
        _Freezer(file, self._shared).dump(value)
        self._data = file.getvalue()

    def thaw(self) -> Any:
        return _Thawer(io.BytesIO(self._data), self._shared).load()


class _Bounded(io.BytesIO):
    def __init__(self, limit_nbytes: int) -> None:
        super().__init__()
        self._limit_nbytes = limit_nbytes

    def write(self, data: Any) -> int:
        if self.tell() + memoryview(data).nbytes > self._limit_nbytes:
            raise TooLarge(f"larger than {self._limit_nbytes >> 20} MiB")
        return super().write(data)


class _Freezer(pickle.Pickler):
    def __init__(self, file: io.BytesIO, shared: list[Any]) -> None:
        super().__init__(file, protocol=5)
        self._shared = shared

    def persistent_id(self, value: Any) -> int | None:
        if not _is_shared(value):
            return None
        self._shared.append(value)
        return len(self._shared) - 1


class _Thawer(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, shared: list[Any]) -> None:
        super().__init__(file)
        self._shared = shared

    def persistent_load(self, number: Any) -> Any:
        return self._shared[number]


def _is_shared(value: Any) -> bool:
    if isinstance(value, torch.Tensor):
        return value.device.type != "cpu" or value.is_shared()
    return f"{type(value).__module__}.".startswith(_SHARED_FROM)
