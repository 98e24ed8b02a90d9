"""Averages one model's buckets over gloo: compressed reduce-scatter and all-gather of CPU tensors.

Each rank adds up a shard: compressed gradients go to their shard's rank (all-to-all), are added up
in fp32 in rank order, compressed once more, and go to all ranks (all-gather), which all read the
same bytes.

Promise: all ranks end with the same bits; buckets are exchanged in the order in which they were
given. Every collective is issued by this object's thread, none from a callback: else gloo may see
another order on another rank.
Owner: its thread; shared: the queue.
"""

import contextlib
import os
import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from stoker.clock import now_s
from stoker.gradients.buckets import Always, Bucket, Buckets, Choice, Counts
from stoker.gradients.filters import Coding

END_S = 1.0  # the thread's, when the model goes


@dataclass(slots=True)
class _Turn:
    """A bucket queued for its exchange. done: the training loop's future; number: of all steps."""

    parameters: list[torch.Tensor]
    buffer: torch.Tensor
    done: "torch.futures.Future[Any]"
    number: int
    is_first: bool  # of a step
    at_s: float
    bucket: Bucket | None = None


class Exchange:
    """Averages buckets on a thread of its own. group: a torch.distributed.ProcessGroupGloo that
    nothing else uses, of the same ranks on each."""

    closes_at_exit = True

    def __init__(self, group: Any, coding: Coding, choice: Choice | None = None) -> None:
        self._group = group
        self._size: int = group.size()
        cpu = torch.device("cpu")
        self._buckets = Buckets(self._size, group.rank(), cpu, coding, choice or Always())
        self._jobs: queue.SimpleQueue[_Turn | None] = queue.SimpleQueue()
        self._following: _Turn | None = None  # looked at before its turn
        self._num_jobs = 0
        self._thread: threading.Thread | None = None
        self._pid = os.getpid()

    @property
    def counts(self) -> Counts:
        return self._buckets.counts

    def exchange(
        self, parameters: list[torch.Tensor], buffer: torch.Tensor, is_first: bool = True
    ) -> Any:
        """Average a bucket over the ranks, in place; return a future of the buffer.

        parameters: those whose gradients lie in the buffer, in its order. is_first: of its step.
        The future raises what the collective raised.
        """
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="stoker-gradients", daemon=True)
            self._thread.start()
        done: torch.futures.Future[Any] = torch.futures.Future()
        outcome = done.then(_outcome)
        self._jobs.put(_Turn(parameters, buffer, done, self._num_jobs, is_first, now_s()))
        self._num_jobs += 1
        return outcome

    def close(self) -> None:
        """End the thread. Idempotent; does nothing in a forked copy."""
        if self._thread is not None and os.getpid() == self._pid:
            self._jobs.put(None)
            self._thread.join(END_S)  # longer only where a peer is lost
            self._thread = None

    def _run(self) -> None:
        failure: Exception | None = None
        while True:
            job, self._following = self._following or self._jobs.get(), None
            if job is None:
                return
            try:
                if failure is not None:  # the others are elsewhere: nothing can be in order again
                    raise failure
                self._buckets.meet()
                if job.is_first:
                    self._buckets.next_step(job.at_s)
                if job.bucket is None:
                    self._quantise(job)
                if job.bucket is None:
                    self._average(job)
                    continue
                self._exchange(job, job.bucket)
                result: object = job.buffer
            except Exception as error:
                result = failure = error
            done, job = job.done, None
            done.set_result(result)

    def _average(self, job: _Turn) -> None:
        """Average as DDP does without a hook (torch/csrc/distributed/c10d/reducer.cpp, 2.13)."""
        if job.buffer.dtype == torch.float32:
            # torch would bring a team of threads into this one
            values = job.buffer.numpy()
            np.multiply(values, np.float32(1.0 / self._size), out=values)
        else:
            job.buffer.mul_(1.0 / self._size)
        work = self._group.allreduce([job.buffer])
        work.get_future().add_done_callback(_teller(job.done, job.buffer))
        self._buckets.count_plain(job.buffer)

    def _exchange(self, job: _Turn, bucket: Bucket) -> None:
        work = self._group.alltoall_base(bucket.received, bucket.sent, [], [])
        self._prepare_next()
        work.wait()
        self._buckets.add_up(bucket, job.number)
        work = self._group._allgather_base(bucket.received, bucket.own)
        self._prepare_next()
        work.wait()
        self._buckets.finish(bucket, job.buffer)

    def _prepare_next(self) -> None:
        """Quantise the next bucket while this one's messages are on their way."""
        if self._following is not None:
            return
        with contextlib.suppress(queue.Empty):
            self._following = self._jobs.get_nowait()
            if self._following is None:
                self._jobs.put(None)  # the end, when its turn has come
            elif not self._following.is_first:  # with which something may be decided first
                self._quantise(self._following)

    def _quantise(self, job: _Turn) -> None:
        """Quantise a bucket, unless it is not to be compressed."""
        job.bucket = self._buckets.quantised(job.parameters, job.buffer, job.number)


def _teller(done: "torch.futures.Future[Any]", buffer: torch.Tensor) -> Callable[[Any], None]:
    """Return a callback that tells the training loop how an average has ended."""

    def tell(reduced: "torch.futures.Future[Any]") -> None:
        try:
            reduced.value()
            done.set_result(buffer)
        except Exception as error:
            done.set_result(error)

    return tell


def _outcome(done: "torch.futures.Future[Any]") -> torch.Tensor:
    """Return the buffer, or raise the error here: a future's own exceptions do not reach DDP."""
    result = done.value()
    if isinstance(result, Exception):
        raise result
    buffer: torch.Tensor = result
    return buffer
