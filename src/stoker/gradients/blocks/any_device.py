"""Implements the loops of cpu.py with torch's own operations, for any device.

The bytes are the same to the bit. For devices without compiled loops of ours; allocates memory for
intermediate results. A table is a list of runs (layout.py).
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from stoker.gradients.blocks.layout import NOWHERE, Run, runs_of
from stoker.gradients.codes import WORD_NBYTES, Code

_ROUND = 1.5 * 2**23  # added to a float below 2**22, leaves it rounded in the lower bits
_MAX = torch.finfo(torch.float32).max
_SHARE = {Code.INT4: float(np.float32(1 / 7)), Code.INT8: float(np.float32(1 / 127))}
_SHIFT = float(np.float32(2**-16 * (1 - 2**-14)))
_WORD = 0xFFFFFFFF


def table_of(blocks: npt.NDArray[np.int64], device: torch.device) -> list[Run]:
    return runs_of(blocks)


def given(tensor: Tensor) -> Tensor:
    return tensor


def widen(buffer: Tensor, wide: Tensor) -> None:
    wide.copy_(buffer)


def narrow(wide: Tensor, buffer: Tensor) -> None:
    buffer.copy_(wide)


def quantise(
    values: Tensor, table: Sequence[Run], message: Tensor, residuals: Tensor, seed: Any
) -> None:
    for run in table:
        rows = _rows(values, run.start, run)
        if run.memory == NOWHERE:
            _write(rows, run, message, seed)
            continue
        kept = _rows(residuals, run.memory, run)
        sums = rows + kept
        _write(sums, run, message, seed)
        is_finite = sums.isfinite().all(1, keepdim=True)
        kept.copy_(torch.where(is_finite, sums - _read(message, run), kept))


def reduce(
    received: Tensor, num_ranks: int, table: Sequence[Run], divisor: Any, message: Tensor, seed: Any
) -> None:
    messages = received.view(num_ranks, -1)
    for run in table:
        sums = torch.zeros(run.num, run.length, device=received.device)
        for each in messages:
            sums += _read(each, run)
        # By a tensor: a number's reciprocal would be multiplied with.
        _write(sums.div_(sums.new_full((1,), float(divisor))), run, message, seed)


def dequantise(message: Tensor, table: Sequence[Run], values: Tensor) -> None:
    for run in table:
        _rows(values, run.start, run).copy_(_read(message, run))


def _rows(flat: Tensor, first: int, run: Run) -> Tensor:
    return flat[first : first + run.num * run.length].view(run.num, run.length)


def _bytes(message: Tensor, run: Run) -> Tensor:
    return message[run.place : run.place + run.num * run.nbytes].view(run.num, run.nbytes)


def _write(rows: Tensor, run: Run, message: Tensor, seed: Any) -> None:
    out = _bytes(message, run)
    if run.code is Code.FP32:
        out.view(torch.float32).copy_(rows)
        return
    if run.code is Code.BF16:
        out.view(torch.bfloat16)[:, : run.length].copy_(rows)
        return
    largest = rows.abs().amax(1, keepdim=True)
    largest = torch.where(largest.isfinite(), largest, torch.nan)
    out[:, :WORD_NBYTES].view(torch.float32).copy_(largest)
    whole = _scaled(rows, largest, run, seed).view(torch.int32) & (2**run.code - 1)
    if run.code is Code.INT8:
        out[:, WORD_NBYTES : WORD_NBYTES + run.length].copy_(whole)
        return
    half = (run.length + 1) // 2  # a byte holds an element of the first half, and one of the second
    whole[:, : run.length - half] |= whole[:, half:] << 4
    out[:, WORD_NBYTES : WORD_NBYTES + half].copy_(whole[:, :half])


def _scaled(rows: Tensor, largest: Tensor, run: Run, seed: Any) -> Tensor:
    """Return whole numbers in the floats' lower bits, as cpu.py's `_scaled` writes them."""
    most = float(run.code.num_levels)
    quotient = largest.new_full((1,), most) / largest
    inverse = torch.where(largest > 0, quotient.clamp(max=_MAX), 0.0)
    if not seed:
        return (rows * inverse).add_(_ROUND)
    low, high = int(seed) & _WORD, int(seed) >> 32
    first = torch.arange(run.num * run.length, device=rows.device).add_(run.start)
    h = (first ^ low).view_as(rows) & _WORD
    h = (h ^ (h >> 16)) * 0x7FEB352D & _WORD
    h = h + high & _WORD
    h = (h ^ (h >> 15)) * 0x846CA68B & _WORD
    h = h ^ (h >> 16)
    shift = (h >> 16).float().mul_(_SHIFT).add_(2**-16 - 0.5)
    return (rows * inverse).add_(shift).clamp_(-most, most).add_(_ROUND)


def _read(message: Tensor, run: Run) -> Tensor:
    found = _bytes(message, run)
    if run.code is Code.FP32:
        return found.view(torch.float32)
    if run.code is Code.BF16:
        return found.view(torch.bfloat16)[:, : run.length].float()
    largest = found[:, :WORD_NBYTES].view(torch.float32)
    if run.code is Code.INT8:
        whole = found[:, WORD_NBYTES : WORD_NBYTES + run.length].view(torch.int8).float()
    else:
        half = (run.length + 1) // 2
        both = found[:, WORD_NBYTES : WORD_NBYTES + half].int()
        low, high = ((both & 15) ^ 8) - 8, ((both >> 4) ^ 8) - 8
        whole = torch.cat([low, high[:, : run.length - half]], 1).float()
    return whole.mul_(_SHARE[run.code]).mul_(largest)
