"""exchange.py's scatter-reduce-allgather for accelerators: on a stream beside the backward pass's.

Promise: as there. Everything is issued by the thread that calls DDP's hook, in the order of the
buckets, as NCCL wants it; that thread waits for nothing, but while a trial times steps.
"""

import contextlib
import os
from collections.abc import Iterator
from typing import Any

import torch

from stoker.clock import now_s
from stoker.gradients.buckets import Always, Buckets, Choice, Counts
from stoker.gradients.filters import Coding


class OnStream:
    """group: a torch.distributed.ProcessGroupNCCL that nobody else uses, of the same ranks on each.

    On a device without streams, as a CPU, each bucket is waited for.
    """

    def __init__(
        self, group: Any, coding: Coding, choice: Choice | None, device: torch.device
    ) -> None:
        self._group, self._device, self._size = group, device, group.size()
        self._choice = choice or Always()
        self._buckets = Buckets(self._size, group.rank(), device, coding, self._choice)
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        self._num_given = 0
        self._pid = os.getpid()

    @property
    def counts(self) -> Counts:
        return self._buckets.counts

    def exchange(
        self, parameters: list[torch.Tensor], buffer: torch.Tensor, is_first: bool = True
    ) -> Any:
        """As Exchange's."""
        self._buckets.meet()
        if is_first:
            if self._stream is not None and not self._choice.is_over:
                torch.cuda.current_stream(self._device).synchronize()  # else times are launches'
            self._buckets.next_step(now_s())
        number, self._num_given = self._num_given, self._num_given + 1
        with self._beside():
            bucket = self._buckets.quantised(parameters, buffer, number)
            if bucket is None:
                # As DDP without a hook (torch/csrc/distributed/c10d/reducer.cpp, 2.13).
                self._group.allreduce([buffer.mul_(1.0 / self._size)]).wait()
                self._buckets.count_plain(buffer)
            else:
                self._group.alltoall_base(bucket.received, bucket.sent, [], []).wait()
                self._buckets.add_up(bucket, number)
                self._group._allgather_base(bucket.received, bucket.own).wait()
                self._buckets.finish(bucket, buffer)
            return self._done(buffer)

    def close(self) -> None:
        """Give the group's communicators back, where nothing of ours runs; else they go with the process.

        Nothing in a forked copy.
        """
        if self._stream is not None and os.getpid() == self._pid:
            with contextlib.suppress(RuntimeError):  # CUDA or NCCL have failed before
                if self._stream.query():
                    self._group.abort()

    @contextlib.contextmanager
    def _beside(self) -> Iterator[None]:
        """What is issued runs once the gradients are there, and what DDP issues next beside it."""
        if self._stream is None:
            yield
            return
        self._stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(self._stream):
            yield

    def _done(self, buffer: torch.Tensor) -> "torch.futures.Future[torch.Tensor]":
        """Whoever waits for it has its own stream wait for ours."""
        devices: list[Any] | None = None if self._stream is None else [self._device]
        done: torch.futures.Future[torch.Tensor] = torch.futures.Future(devices=devices)
        done.set_result(buffer)
        return done
