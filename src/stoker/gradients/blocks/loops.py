"""What each device's loops have in common, and which of them a device has.

Promise: on every device the same values make the same bytes, to the bit.
"""

from importlib import import_module
from importlib.util import find_spec
from typing import Any, Protocol, cast

import numpy as np
import torch

NEAREST = np.uint64(0)  # the seed that rounds to nearest


class Loops(Protocol):
    """Of cpu.py, cuda.py or any_device.py. seed: NEAREST, or of stochastic rounding.

    table_of: a shard's blocks (layout.py) as the loops take them; given: a tensor as they take it.
    widen: 16-bit floats to fp32; narrow: back, to nearest even. quantise: one shard's values into
    its message; reduce: all ranks' messages of one shard, in their order, into one; dequantise: a
    message's values to where its blocks lie.
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


def loops_for(device: torch.device) -> Loops:
    """Compiled ones where there are such."""
    name = "cpu" if device.type == "cpu" else "cuda"
    if name == "cuda" and find_spec("triton") is None:
        name = "any_device"
    loops: Any = import_module(f"stoker.gradients.blocks.{name}")
    return cast(Loops, loops)
