"""Keeps each DDP bucket's message buffers, and the residuals of compression, between steps.

Promise: a bucket that was seen before allocates nothing for its messages; residuals, which are what
compression lost in a step, are kept by parameter, never by bucket, for DDP rebuilds its buckets.
Ban: no collective; exchange.py and on_stream.py have those.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch

from stoker.gradients.blocks import NEAREST, NOWHERE, Segment, layout_of, loops_for
from stoker.gradients.codes import Code, capped
from stoker.gradients.filters import Coding


class Choice(Protocol):
    """Decides which buckets are compressed, and with which codes: gate/picker.py's Picker.

    is_over: whether nothing is left to decide. next_step: whether no bucket will be compressed any
    more.
    """

    @property
    def is_over(self) -> bool: ...

    def meet(self) -> None: ...
    def next_step(self, at_s: float) -> bool: ...
    def cap(self, lengths: Sequence[int], codes: Sequence[Code]) -> Code | None: ...


class Always:
    """Compresses every bucket, with the codes that were asked for."""

    is_over = True

    def meet(self) -> None:
        pass

    def next_step(self, at_s: float) -> bool:
        return False

    def cap(self, lengths: Sequence[int], codes: Sequence[Code]) -> Code | None:
        return min(Code)


@dataclass(slots=True)
class Counts:
    """Totals of the exchange. wire_nbytes: sent by this rank; raw_nbytes: what fp32 would be.

    scheme: how gradients travel now; None if the script's own hook decides that.
    """

    scheme: str | None = None
    num_buckets: int = 0
    wire_nbytes: int = 0
    raw_nbytes: int = 0


class Bucket:
    """The message buffers of one bucket, valid while it holds the same parameters.

    sent, received: all ranks' messages, one after the other; own: this rank's averages, which go to
    all.
    """

    def __init__(self, segments: Sequence[Segment], size: int, rank: int, device: torch.device):
        self._loops = loops = loops_for(device)
        self._size = size
        self.num = sum(segment.length for segment in segments)
        layout = layout_of(segments, size)
        nbytes = layout.message_nbytes
        self.wire_nbytes = layout.wire_nbytes
        self.sent = torch.zeros(size * nbytes, dtype=torch.uint8, device=device)
        self.received = torch.zeros_like(self.sent)
        self.own = self.sent[:nbytes]  # free by the second half
        self._messages = [loops.given(each) for each in self.sent.split(nbytes)]
        self._answers = [loops.given(each) for each in self.received.split(nbytes)]
        self._received, self._own = loops.given(self.received), loops.given(self.own)
        self._tables = [loops.table_of(layout.shard(each), device) for each in range(size)]
        self._table = self._tables[rank]
        self._wide: torch.Tensor | None = None  # of 16-bit gradients

    def quantise(self, buffer: torch.Tensor, residuals: torch.Tensor, seed: Any) -> None:
        """Quantise the gradients in `buffer`, with their residuals, into the messages to send."""
        if buffer.dtype == torch.float32:
            values = self._loops.given(buffer)
        else:
            if self._wide is None:
                self._wide = torch.zeros(self.num, device=buffer.device)
            self._loops.widen(buffer, self._wide)
            values = self._loops.given(self._wide)
        kept = self._loops.given(residuals)
        for table, message in zip(self._tables, self._messages, strict=True):
            self._loops.quantise(values, table, message, kept, seed)

    def add_up(self, seed: Any) -> None:
        """Average the received messages, in rank order, and quantise the result into `own`."""
        divisor = np.float32(self._size)
        self._loops.reduce(self._received, self._size, self._table, divisor, self._own, seed)

    def dequantise(self, buffer: torch.Tensor) -> None:
        """Write all ranks' averages, as received, to `buffer`."""
        wide = buffer if self._wide is None else self._wide
        values = self._loops.given(wide)
        for message, table in zip(self._answers, self._tables, strict=True):
            self._loops.dequantise(message, table, values)
        if self._wide is not None:
            self._loops.narrow(self._wide, buffer)


class Buckets:
    """All buckets of one model, on one of `size` ranks.

    Owner: the thread that issues the model's collectives.
    """

    def __init__(
        self, size: int, rank: int, device: torch.device, coding: Coding, choice: Choice
    ) -> None:
        self._size, self._rank, self._device = size, rank, device
        self._coding, self._choice = coding, choice
        self._residuals = torch.zeros(coding.num, device=device)
        self._known: dict[tuple[int, ...], Bucket] = {}  # by cap and parameters
        self._has_met = False
        self.counts = Counts()

    def next_step(self, at_s: float) -> None:
        """Begin a step, whose first bucket came at `at_s`."""
        if self._choice.next_step(at_s):
            self._known.clear()
            self._residuals = torch.empty(0)

    def meet(self) -> None:
        """Have the choice measure, before the first bucket; later calls do nothing. Collective."""
        if not self._has_met:
            self._choice.meet()
            self._has_met = True

    def quantised(
        self, parameters: Sequence[torch.Tensor], buffer: torch.Tensor, number: int
    ) -> Bucket | None:
        """Return the bucket with its messages written; None if it is not to be compressed.

        number: counts the buckets of all steps.
        """
        lengths = [parameter.numel() for parameter in parameters]
        ids = [id(parameter) for parameter in parameters]
        codes = [self._coding.codes[each] for each in ids]
        cap = self._choice.cap(lengths, codes)
        if cap is None:
            return None
        bucket = self._known.get((cap, *ids))
        if bucket is None:
            self._forget(ids)
            memory = [self._coding.memory.get(each, NOWHERE) for each in ids]
            starts = np.cumsum([0, *lengths]).tolist()
            rows = zip(starts[:-1], lengths, capped(codes, cap), memory, strict=True)
            segments = [Segment(*row) for row in rows]
            bucket = Bucket(segments, self._size, self._rank, self._device)
            self._known[cap, *ids] = bucket
        bucket.quantise(buffer, self._residuals, self._seed(number))
        return bucket

    def add_up(self, bucket: Bucket, number: int) -> None:
        bucket.add_up(self._seed(number, of_sum=True))

    def finish(self, bucket: Bucket, buffer: torch.Tensor) -> None:
        bucket.dequantise(buffer)
        self._count(bucket.wire_nbytes, bucket.num)

    def count_plain(self, buffer: torch.Tensor) -> None:
        self._count(2 * (self._size - 1) * buffer.nbytes // self._size, buffer.numel())

    def _count(self, wire_nbytes: int, num: int) -> None:
        self.counts.num_buckets += 1
        self.counts.wire_nbytes += wire_nbytes
        self.counts.raw_nbytes += 2 * (self._size - 1) * 4 * num // self._size

    def _forget(self, ids: list[int]) -> None:
        """Drop the buckets that held these parameters: after the first step DDP rebuilds them."""
        for key in [key for key in self._known if set(ids) & set(key[1:])]:
            del self._known[key]

    def _seed(self, number: int, of_sum: bool = False) -> np.uint64:
        """Return a rounding seed: another for each rank, bucket, step and half of the exchange."""
        if self._coding.seed is None:
            return NEAREST
        words = (self._coding.seed, number, self._size if of_sum else self._rank)
        seed = 0
        for word in words:  # SplitMix64 (Steele, Lea, Flood, 2014)
            seed = (seed + word + 0x9E3779B97F4A7C15) % 2**64
            seed = (seed ^ (seed >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
            seed = (seed ^ (seed >> 27)) * 0x94D049BB133111EB % 2**64
            seed ^= seed >> 31
        return np.uint64(seed or 1)
