"""torch's `collate_tensor_fn` with a faster copy, for large samples that are all alike.

Promise: the tensor that torch's would make, in memory from the same place; any doubt about the
samples leads to torch's own function, so what else it gives or raises is torch's too.
Source: torch/utils/data/_utils/collate.py `collate_tensor_fn`, 2.13.
"""

import builtins
import functools
from collections.abc import Callable
from typing import Any

import torch
from torch.utils.data import get_worker_info
from torch.utils.data._utils import collate

from stoker.wire.stream_copy import STREAM_NBYTES, StreamCopy, stream_copy

# Of smaller samples there are so many that looking at each costs what its copy saves.
# Measured: docs/decisions/006-streaming-stores.md
SAMPLE_NBYTES = 64 * 1024

_DTYPES = {
    torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.bfloat16,
    torch.float16, torch.float32, torch.float64, torch.complex64, torch.complex128,
}  # fmt: skip

# What torch's function is made of. One of other names is the user's, or a newer torch's.
_KNOWN_NAMES = {
    "is_nested", "layout", "torch", "sparse_coo", "sparse_csr", "sparse_bsr", "sparse_csc",
    "sparse_bsc", "utils", "data", "get_worker_info", "_typed_storage", "_new_shared", "device",
    "new", "resize_", "size", "stack",
}  # fmt: skip
_NEEDED = ("_dispatch_keys", "_len_torch_function_stack", "_len_torch_dispatch_stack")


def stack_faster() -> None:
    """Let default_collate stack large samples with streaming stores, in this process."""
    functions: dict[Any, Any] = collate.default_collate_fn_map
    original = functions.get(torch.Tensor)
    if stream_copy is not None and original is collate.collate_tensor_fn and is_known(original):
        functions[torch.Tensor] = faster(original, stream_copy)


def is_known(function: Any) -> bool:
    """Whether a function is torch's, in the form that `faster` stands in for."""
    code = getattr(function, "__code__", None)
    if code is None or not all(hasattr(torch._C, name) for name in _NEEDED):
        return False
    return set(code.co_names) - vars(builtins).keys() == _KNOWN_NAMES


def faster(original: Callable[..., Any], copy: StreamCopy) -> Callable[..., Any]:
    """`original`, but `copy` fills the batch where stacking is a copy of bytes and no more."""
    plain_keys = _plain_keys()

    @functools.wraps(original)
    def collate_tensor_fn(batch: Any, *, collate_fn_map: Any = None) -> Any:
        if not _can_stream(batch, plain_keys) or get_worker_info() is None:
            return original(batch, collate_fn_map=collate_fn_map)
        first, num = batch[0], len(batch)
        storage = first._typed_storage()._new_shared(num * first.numel(), device=first.device)
        out = first.new(storage).resize_(num, *first.size())
        copy(out.data_ptr(), [x.data_ptr() for x in batch], first.nbytes)
        return out

    return collate_tensor_fn


def _plain_keys() -> tuple[object, ...]:
    """The dispatch keys of ordinary tensors in ordinary memory, made out of and in inference mode.

    Every oddity shows as another key: device, layout, quantized, nested, conjugate, negative,
    all zeros without memory, wrapped by a transform.
    """
    keys = []
    for is_inference in (False, True):
        with torch.inference_mode(is_inference):
            keys.append(torch._C._dispatch_keys(torch.empty(0, device="cpu")))
    return tuple(keys)


def _can_stream(batch: Any, plain_keys: tuple[object, ...]) -> bool:
    """Whether these are many bytes in samples that differ in nothing but their values."""
    if type(batch) not in (list, tuple) or not batch or type(batch[0]) is not torch.Tensor:
        return False
    first = batch[0]
    nbytes = first.numel() * first.element_size()
    if nbytes < SAMPLE_NBYTES or nbytes * len(batch) < STREAM_NBYTES:
        return False  # first of all: so it is with most loaders, and they pay 0.5 us a batch
    if not _is_plain(first, plain_keys) or first.dtype not in _DTYPES or _is_watched():
        return False
    dtype, shape = first.dtype, first.shape
    return all(_is_plain(x, plain_keys) and x.dtype is dtype and x.shape == shape for x in batch)


def _is_plain(x: Any, plain_keys: tuple[object, ...]) -> bool:
    return (
        type(x) is torch.Tensor
        and torch._C._dispatch_keys(x) in plain_keys
        and not x.requires_grad
        and x.is_contiguous()
        and x.data_ptr() != 0  # its storage may have been emptied
    )


def _is_watched() -> bool:
    """Whether somebody's mode (a default device, a profiler) sees what torch is asked to do."""
    return torch._C._len_torch_function_stack() > 0 or torch._C._len_torch_dispatch_stack() > 0
