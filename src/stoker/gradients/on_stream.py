"""Averages one model's buckets on an accelerator, on a stream beside the backward pass's.

Promise: as exchange.py's, for the same collectives. Everything is issued by the thread that calls
DDP's hook, in bucket order, as NCCL wants it. That thread waits for the device in the first step,
while a trial times steps, and where a bucket is new; otherwise it never waits.
"""

import contextlib
import os
import threading
from collections.abc import Iterator
from typing import Any

import torch

from stoker.clock import now_s
from stoker.gradients.buckets import Always, Buckets, Choice, Counts
from stoker.gradients.filters import Coding


class OnStream:
    """Averages buckets on a CUDA stream of its own; on a device without streams it waits for each.

    group: a torch.distributed.ProcessGroupNCCL that nothing else uses, of the same ranks on each.
    """

    closes_at_exit = False

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
        """Average as Exchange does; while a CUDA graph is captured, as DDP without a hook."""
        if self._stream is not None and torch.cuda.is_current_stream_capturing():
            self._average(buffer)
            return self._done(buffer)
        self._buckets.meet()
        if is_first:
            if self._stream is not None and not self._choice.is_over:
                torch.cuda.current_stream(self._device).synchronize()  # else times are launches'
            self._buckets.next_step(now_s())
        number, self._num_given = self._num_given, self._num_given + 1
        with self._beside():
            bucket = self._buckets.quantised(parameters, buffer, number)
            if bucket is None:
                self._average(buffer)
            else:
                self._group.alltoall_base(bucket.received, bucket.sent, [], []).wait()
                self._buckets.add_up(bucket, number)
                self._group._allgather_base(bucket.received, bucket.own).wait()
                self._buckets.finish(bucket, buffer)
            return self._done(buffer)

    def close(self) -> None:
        """Shut the communicators down once all that was sent has arrived, without waiting for it.

        Does nothing in a forked copy. Not called at exit: a peer may be lost, and be waited for.
        """
        if self._stream is not None and os.getpid() == self._pid:
            threading.Thread(target=_shut_down, args=(self._group,), daemon=True).start()

    def _average(self, buffer: torch.Tensor) -> None:
        """Average as DDP does without a hook (torch/csrc/distributed/c10d/reducer.cpp, 2.13)."""
        self._group.allreduce([buffer.mul_(1.0 / self._size)]).wait()
        self._buckets.count_plain(buffer)

    @contextlib.contextmanager
    def _beside(self) -> Iterator[None]:
        """Issue work that runs once the gradients are there, beside what DDP issues next."""
        if self._stream is None:
            yield
            return
        self._stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(self._stream):
            yield

    def _done(self, buffer: torch.Tensor) -> "torch.futures.Future[torch.Tensor]":
        """Return a future of the buffer; whoever waits for it has its own stream wait for ours."""
        devices: list[Any] | None = None if self._stream is None else [self._device]
        done: torch.futures.Future[torch.Tensor] = torch.futures.Future(devices=devices)
        done.set_result(buffer)
        return done


def _shut_down(group: Any) -> None:
    with contextlib.suppress(RuntimeError):  # CUDA or NCCL have failed before
        group.shutdown()
