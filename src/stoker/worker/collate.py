"""Replaces torch's `collate_tensor_fn` with a faster one for large batches.

Large samples that are all alike are copied with streaming stores; for smaller ones the batch's memory
is found by a shorter way. Promise: the tensor is the one that torch's would make, in memory from the same allocator; any doubt
about the samples leads to torch's own function, so what else it gives or raises is torch's too.
Source: torch/utils/data/_utils/collate.py `collate_tensor_fn`, 2.13.
"""

import builtins
import functools
from collections.abc import Callable
from typing import Any

import torch
from torch.utils.data import get_worker_info
from torch.utils.data._utils import collate

from stoker.fingerprint.modes import has_modes
from stoker.wire.batch_codec import LARGE_NBYTES
from stoker.wire.stream_copy import STREAM_NBYTES, StreamCopy, stream_copy

# Of smaller samples there are so many that looking at each costs what its copy saves.
# Measured: docs/decisions/006-streaming-stores.md
SAMPLE_NBYTES = 64 * 1024
# Of samples that are remembered: a copy of fewer bytes costs next to nothing.
MOVED_NBYTES = 4 * 1024

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
_NEEDED = (
    "_dispatch_keys", "_len_torch_function_stack", "_len_torch_dispatch_stack", "_functorch", "_get_tracing_state",
)  # fmt: skip

BatchOf = Callable[[Any], torch.Tensor | None]


def _not_ready(samples: Any) -> None:
    return None


def stack_faster(batch_of: BatchOf = _not_ready) -> bool:
    """Let default_collate stack large samples with streaming stores, in this process.

    batch_of: returns the batch that samples have become already, if they have. Returns False if
    torch's own function stays.
    """
    functions: dict[Any, Any] = collate.default_collate_fn_map
    original = functions.get(torch.Tensor)
    if stream_copy is None or original is not collate.collate_tensor_fn or not is_known(original):
        return False
    functions[torch.Tensor] = faster(original, stream_copy, batch_of)
    _plain_keys()  # now, before modes of the user's make other keys
    return True


def is_known(function: Any) -> bool:
    """Whether a function is torch's, in the form that `faster` replaces."""
    code = getattr(function, "__code__", None)
    if code is None or not all(hasattr(torch._C, name) for name in _NEEDED):
        return False
    return set(code.co_names) - vars(builtins).keys() == _KNOWN_NAMES


def faster(
    original: Callable[..., Any], copy: StreamCopy, batch_of: BatchOf = _not_ready
) -> Callable[..., Any]:
    """Return `original`, but with `copy` filling the batch if stacking only copies bytes."""

    @functools.wraps(original)
    def collate_tensor_fn(batch: Any, *, collate_fn_map: Any = None) -> Any:
        ready = batch_of(batch)
        if ready is not None:
            return ready
        if not _is_large(batch) or get_worker_info() is None:
            return original(batch, collate_fn_map=collate_fn_map)
        first, num = batch[0], len(batch)
        if first.nbytes < SAMPLE_NBYTES:
            try:
                return torch.stack(batch, 0, out=room_for(first, num))
            except Exception:  # for torch's own function to tell
                return original(batch, collate_fn_map=collate_fn_map)
        if not is_worth_streaming(first, num) or not all(is_like(x, first) for x in batch):
            return original(batch, collate_fn_map=collate_fn_map)
        out = room_for(first, num)
        copy(out.data_ptr(), [x.data_ptr() for x in batch], first.nbytes)
        return out

    return collate_tensor_fn


def room_for(sample: torch.Tensor, num: int) -> torch.Tensor:
    """Allocate a batch of `num` samples like this one, unfilled, where torch would allocate it."""
    storage = torch.UntypedStorage._new_shared(num * sample.nbytes, device="cpu")
    out = torch.empty(0, dtype=sample.dtype, device="cpu").set_(storage)
    return out.resize_(num, *sample.shape)


def is_worth_streaming(sample: torch.Tensor, num: int) -> bool:
    """Whether `num` samples like this one are many bytes, and plain tensors."""
    nbytes = _nbytes(sample)
    if nbytes < SAMPLE_NBYTES or nbytes * num < STREAM_NBYTES:
        return False
    return sample.dtype in _DTYPES and _is_plain(sample) and not has_modes()


def is_worth_moving(sample: torch.Tensor, num: int) -> bool:
    """Whether `num` such samples fill a batch of the arena: each is then best made in its row."""
    nbytes = _nbytes(sample)
    if nbytes < MOVED_NBYTES or nbytes * num < LARGE_NBYTES:
        return False
    return sample.dtype in _DTYPES and _is_plain(sample) and not has_modes()


def is_like(x: Any, sample: torch.Tensor) -> bool:
    """Whether x differs in nothing but its values from a sample that is worth streaming."""
    return _is_plain(x) and x.dtype is sample.dtype and x.shape == sample.shape


def _is_large(batch: Any) -> bool:
    """Whether a batch of tensors goes into the arena, and its first sample is an ordinary tensor."""
    if type(batch) not in (list, tuple) or not batch or type(batch[0]) is not torch.Tensor:
        return False
    first = batch[0]
    if _nbytes(first) * len(batch) < LARGE_NBYTES:
        return False  # first of all: so it is with most loaders, and they pay 0.5 us a batch
    return first.dtype in _DTYPES and _is_plain(first) and not has_modes()


def _nbytes(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()  # .nbytes raises for a sparse one


def _is_plain(x: Any) -> bool:
    return (
        type(x) is torch.Tensor
        and torch._C._dispatch_keys(x) in _plain_keys()
        and not x.requires_grad
        and x.is_contiguous()
        and x.data_ptr() != 0  # its storage may have been emptied
    )


@functools.cache
def _plain_keys() -> tuple[object, ...]:
    """Return the dispatch keys of ordinary tensors on the CPU, made out of and in inference mode.

    Every oddity shows as another key: device, layout, quantized, nested, conjugate, negative, all
    zeros without memory, wrapped by a transform.
    """
    keys = []
    for is_inference in (False, True):
        with torch.inference_mode(is_inference):
            keys.append(torch._C._dispatch_keys(torch.empty(0, device="cpu")))
    return tuple(keys)
