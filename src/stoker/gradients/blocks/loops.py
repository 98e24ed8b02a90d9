"""Defines the interface of the compression loops, and chooses a device's implementation.

Promise: on every device the same values make the same bytes, to the bit.
"""

import functools
from importlib import import_module
from typing import Any, Protocol, cast

import numpy as np
import torch

from stoker.gradients.blocks.layout import Segment, layout_of
from stoker.gradients.codes import Code

NEAREST = np.uint64(0)  # the seed that rounds to nearest


class Loops(Protocol):
    """The loops of one device: cpu.py, cuda.py or any_device.py.

    seed: NEAREST, or of stochastic rounding. table_of: a shard's blocks (layout.py) as the loops
    take them; given: a tensor as they take it. widen: 16-bit floats to fp32; narrow: back, to
    nearest even. quantise: one shard's values into its message; reduce: all ranks' messages of one
    shard, in their order, into one; dequantise: a message's values to where its blocks lie.
    """

    def table_of(self, blocks: Any, device: torch.device) -> Any: ...
    def given(self, tensor: torch.Tensor) -> Any: ...
    def widen(self, buffer: torch.Tensor, wide: torch.Tensor) -> None: ...
    def narrow(self, wide: torch.Tensor, buffer: torch.Tensor) -> None: ...
    def quantise(
        self, values: Any, table: Any, message: Any, residuals: Any, seed: Any
    ) -> None: ...
    def reduce(
        self, received: Any, num_ranks: int, table: Any, divisor: Any, message: Any, seed: Any
    ) -> None: ...
    def dequantise(self, message: Any, table: Any, values: Any) -> None: ...


@functools.cache
def loops_for(device: torch.device) -> Loops:
    """Return a device's loops, compiled if possible. Raises ImportError if a CPU's are missing."""
    if device.type == "cpu":
        return _imported("cpu")
    try:
        loops = _imported("cuda")
        _try(loops, device)
    except Exception:  # no Triton, no C compiler that it needs, a GPU that it does not know
        return _imported("any_device")
    return loops


def _imported(name: str) -> Loops:
    loops: Any = import_module(f"stoker.gradients.blocks.{name}")
    return cast(Loops, loops)


def _try(loops: Loops, device: torch.device) -> None:
    """Run each loop once, so that it is compiled, and what fails does so here."""
    layout = layout_of([Segment(0, 8, Code.INT4)], 1)
    table = loops.table_of(layout.blocks, device)
    values, none = torch.zeros(8, device=device), torch.empty(0, device=device)
    message = torch.zeros(layout.message_nbytes, dtype=torch.uint8, device=device)
    loops.quantise(values, table, message, none, NEAREST)
    loops.reduce(message, 1, table, np.float32(1), message.clone(), NEAREST)
    loops.dequantise(message, table, values)
