"""Counts the samples of a batch.

Promise: runs none of the script's code: an object whose class is not Python's, NumPy's or torch's is
asked for nothing, neither truth, length, items nor attributes.
"""

from collections import UserDict
from typing import Any

import torch

MAX_DEPTH = 8


def length_of(index: Any, is_batched: bool) -> int:
    """Return the number of samples that an index list asks for; 1 if the loader does not batch."""
    if not is_batched:
        return 1
    try:
        return len(index)
    except Exception:  # a generator, or a class of the script's
        return 1


def num_samples(batch: Any, at_most: int) -> int:
    """Return the length of the first tensor, array or list in the batch; `at_most` at most."""
    try:
        found = _rows(batch)
    except Exception:  # a tensor that has no length, as some subclasses of tensors
        found = None
    return at_most if found is None else min(found, at_most)


def _rows(batch: Any) -> int | None:
    for _ in range(MAX_DEPTH):
        kind = type(batch)  # not isinstance, which asks the object for its __class__
        if issubclass(kind, torch.Tensor):
            return _rows_of_tensor(batch)
        if kind.__module__ == "numpy" and kind.__name__ == "ndarray":
            return int(batch.shape[0]) if batch.shape else 1
        if issubclass(kind, UserDict):  # transformers' BatchEncoding
            batch = object.__getattribute__(batch, "__dict__").get("data")
        elif issubclass(kind, dict):
            batch = next(iter(dict.values(batch)), None)
        elif issubclass(kind, (list, tuple)):
            base: Any = list if issubclass(kind, list) else tuple
            if not base.__len__(batch):
                return None
            first = base.__getitem__(batch, 0)
            if not _may_hold_rows(type(first)):
                return int(base.__len__(batch))
            batch = first
        else:
            return None
    return None


def _may_hold_rows(kind: type) -> bool:
    is_array = kind.__module__ == "numpy" and kind.__name__ == "ndarray"
    return is_array or issubclass(kind, (torch.Tensor, UserDict, dict, list, tuple))


def _rows_of_tensor(tensor: torch.Tensor) -> int:
    with torch._C.DisableTorchFunctionSubclass():
        return int(torch.Tensor.size(tensor, 0)) if torch.Tensor.dim(tensor) else 1
