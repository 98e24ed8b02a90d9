"""Compressed scatter-reduce-allgather of one model's buckets, on CPU tensors.

Each rank adds up a shard: codes go to their shard's rank (all-to-all), are added up in fp32 in the
order of the ranks, coded once more, and go to everybody (all-gather), who all read the same codes.

Promise: all ranks end with the same bits; buckets are exchanged in the order in which they were
given. Every collective is issued by this object's thread, none from a callback: gloo may else see
another order on another rank. A bucket that was seen before takes no memory for its messages.
Owner: its thread; shared: the queue.
"""

import contextlib
import os
import queue
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch

from stoker.clock import now_s
from stoker.gradients.codes import Code
from stoker.gradients.gate import capped
from stoker.gradients.kernels_cpu import NEAREST, dequantise, quantise, reduce
from stoker.gradients.layout import NOWHERE, Layout, Segment, layout_of

END_S = 1.0  # the thread's, when the model goes


class _Bucket:
    """What one bucket needs, as long as it holds the same parameters."""

    def __init__(
        self,
        lengths: Sequence[int],
        codes: Sequence[Code],
        memory: Sequence[int],
        size: int,
        rank: int,
    ) -> None:
        starts = np.cumsum([0, *lengths]).tolist()
        rows = zip(starts[:-1], lengths, codes, memory, strict=True)
        segments = [Segment(*row) for row in rows]
        self.layout: Layout = layout_of(segments, size)
        self.num: int = starts[-1]
        nbytes = self.layout.message_nbytes
        self.sent = torch.zeros(size * nbytes, dtype=torch.uint8)
        self.received = torch.zeros(size * nbytes, dtype=torch.uint8)
        self.own = self.sent[:nbytes]  # of the second half; free by then
        self.shards = [self.layout.shard(each) for each in range(size)]
        sent = self.sent.numpy()
        self.messages = [sent[r * nbytes : (r + 1) * nbytes] for r in range(size)]
        received = self.received.numpy()
        self.answers = [received[r * nbytes : (r + 1) * nbytes] for r in range(size)]
        self.shard = self.shards[rank]
        self.wide: npt.NDArray[np.float32] | None = None  # of 16-bit gradients
        self.halves: npt.NDArray[np.int64] | None = None  # the bucket itself as blocks of BF16

    def values(self, buffer: torch.Tensor) -> npt.NDArray[np.float32]:
        """As float32: the buffer's own memory, or a copy."""
        if buffer.dtype == torch.float32:
            return buffer.numpy()
        if self.wide is None:
            self.wide = np.zeros(self.num, np.float32)
            self.halves = layout_of([Segment(0, self.num, Code.BF16)], 1).blocks
        if buffer.dtype == torch.float16:
            np.copyto(self.wide, buffer.numpy())
        else:
            dequantise(buffer.view(torch.uint8).numpy(), self.halves, self.wide)
        return self.wide

    def give_back(self, buffer: torch.Tensor) -> None:
        if self.wide is None:
            return
        if buffer.dtype == torch.float16:
            with np.errstate(over="ignore"):  # infinity, as torch's own
                np.copyto(buffer.numpy(), self.wide, casting="same_kind")
        else:
            nothing = np.empty(0, np.float32)
            quantise(self.wide, self.halves, buffer.view(torch.uint8).numpy(), nothing, NEAREST)


@dataclass(slots=True)
class _Job:
    """One bucket's turn. done: of the training loop; number: of all buckets, ever."""

    parameters: list[torch.Tensor]
    buffer: torch.Tensor
    done: "torch.futures.Future[Any]"
    number: int
    is_first: bool  # of a step
    at_s: float
    bucket: _Bucket | None = None
    values: Any = None


@dataclass(slots=True)
class Counts:
    """What was exchanged. wire_nbytes: sent by this rank; raw_nbytes: what fp32 would have sent.

    scheme: how gradients travel now; None where that is the script's business.
    """

    scheme: str | None = None
    num_buckets: int = 0
    wire_nbytes: int = 0
    raw_nbytes: int = 0


@dataclass(frozen=True, slots=True)
class Coding:
    """codes: of each parameter, by id; memory: where each one's residual lies; num: of all of those.

    seed: of stochastic rounding; None: to nearest.
    """

    codes: dict[int, Code]
    memory: dict[int, int] = field(default_factory=dict)
    num: int = 0
    seed: int | None = None


class Choice(Protocol):
    """Says which buckets are coded, and how: probe.py's Picker. Called by the exchange's thread.

    next_step: whether none will be coded any more.
    """

    def meet(self) -> None: ...
    def next_step(self, at_s: float) -> bool: ...
    def cap(self, lengths: Sequence[int], codes: Sequence[Code]) -> Code | None: ...


class Always:
    """Every bucket, with the codes that were asked for."""

    def meet(self) -> None:
        pass

    def next_step(self, at_s: float) -> bool:
        return False

    def cap(self, lengths: Sequence[int], codes: Sequence[Code]) -> Code | None:
        return min(Code)


class Exchange:
    """group: a torch.distributed.ProcessGroupGloo that nobody else uses, of the same ranks on each."""

    def __init__(self, group: Any, coding: Coding, choice: Choice | None = None) -> None:
        self._group = group
        self._size: int = group.size()
        self._rank: int = group.rank()
        self._coding = coding
        self._choice = choice or Always()
        self._residuals = np.zeros(coding.num, np.float32)
        self._buckets: dict[tuple[int, ...], _Bucket] = {}  # by cap and parameters
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._following: _Job | None = None  # looked at before its turn
        self._num_jobs = 0
        self._thread: threading.Thread | None = None
        self._pid = os.getpid()
        self.counts = Counts()

    def exchange(
        self, parameters: list[torch.Tensor], buffer: torch.Tensor, is_first: bool = True
    ) -> Any:
        """Average a bucket over the ranks, in place: a future of the buffer.

        parameters: whose gradients lie in the buffer, in its order. is_first: of its step. The
        future raises what the collective raised.
        """
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="stoker-gradients", daemon=True)
            self._thread.start()
        done: torch.futures.Future[Any] = torch.futures.Future()
        outcome = done.then(_outcome)
        self._jobs.put(_Job(parameters, buffer, done, self._num_jobs, is_first, now_s()))
        self._num_jobs += 1
        return outcome

    def close(self) -> None:
        """End the thread. Idempotent; nothing in a forked copy."""
        if self._thread is not None and os.getpid() == self._pid:
            self._jobs.put(None)
            self._thread.join(END_S)  # longer only where a peer is lost
            self._thread = None

    def _run(self) -> None:
        failure: Exception | None = None
        has_met = False
        while True:
            job, self._following = self._following or self._jobs.get(), None
            if job is None:
                return
            try:
                if failure is not None:  # the others are elsewhere: nothing can be in order again
                    raise failure
                if not has_met:
                    self._choice.meet()
                    has_met = True
                if job.is_first and self._choice.next_step(job.at_s):
                    self._buckets.clear()
                    self._residuals = np.empty(0, np.float32)
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

    def _average(self, job: _Job) -> None:
        """As DDP without a hook (torch/csrc/distributed/c10d/reducer.cpp, 2.13)."""
        if job.buffer.dtype == torch.float32:
            # torch would bring a team of threads into this one
            values = job.buffer.numpy()
            np.multiply(values, np.float32(1.0 / self._size), out=values)
        else:
            job.buffer.mul_(1.0 / self._size)
        work = self._group.allreduce([job.buffer])
        done, buffer = job.done, job.buffer

        def tell(reduced: "torch.futures.Future[Any]") -> None:
            try:
                reduced.value()
                done.set_result(buffer)
            except Exception as error:
                done.set_result(error)

        work.get_future().add_done_callback(tell)
        raw_nbytes = 2 * (self._size - 1) * buffer.nbytes // self._size
        self._count(raw_nbytes, buffer.numel())

    def _count(self, wire_nbytes: int, num: int) -> None:
        self.counts.num_buckets += 1
        self.counts.wire_nbytes += wire_nbytes
        self.counts.raw_nbytes += 2 * (self._size - 1) * 4 * num // self._size

    def _exchange(self, job: _Job, bucket: _Bucket) -> None:
        group = self._group
        work = group.alltoall_base(bucket.received, bucket.sent, [], [])
        self._prepare_next()
        work.wait()
        received, own = bucket.received.numpy(), bucket.own.numpy()
        seed = self._seed(job, of_sum=True)
        reduce(received, self._size, bucket.shard, np.float32(self._size), own, seed)
        work = group._allgather_base(bucket.received, bucket.own)
        self._prepare_next()
        work.wait()
        for message, shard in zip(bucket.answers, bucket.shards, strict=True):
            dequantise(message, shard, job.values)
        bucket.give_back(job.buffer)
        self._count(bucket.layout.wire_nbytes, bucket.num)

    def _prepare_next(self) -> None:
        """The next bucket's codes, while this one's are on their way."""
        if self._following is not None:
            return
        with contextlib.suppress(queue.Empty):
            self._following = self._jobs.get_nowait()
            if self._following is None:
                self._jobs.put(None)  # the end, when its turn has come
            elif not self._following.is_first:  # with which something may be decided first
                self._quantise(self._following)

    def _quantise(self, job: _Job) -> None:
        """Leaves a bucket alone that is not to be coded."""
        lengths = [parameter.numel() for parameter in job.parameters]
        ids = [id(parameter) for parameter in job.parameters]
        codes = [self._coding.codes[each] for each in ids]
        cap = self._choice.cap(lengths, codes)
        if cap is None:
            return
        bucket = self._buckets.get((cap, *ids))
        if bucket is None:
            self._forget(ids)
            memory = [self._coding.memory.get(each, NOWHERE) for each in ids]
            bucket = _Bucket(lengths, capped(codes, cap), memory, self._size, self._rank)
            self._buckets[cap, *ids] = bucket
        job.bucket, job.values = bucket, bucket.values(job.buffer)
        seed = self._seed(job)
        for shard, message in zip(bucket.shards, bucket.messages, strict=True):
            quantise(job.values, shard, message, self._residuals, seed)

    def _forget(self, ids: list[int]) -> None:
        """Buckets that these parameters were in: after the first step they are built anew."""
        for key in [key for key in self._buckets if set(ids) & set(key[1:])]:
            del self._buckets[key]

    def _seed(self, job: _Job, of_sum: bool = False) -> np.uint64:
        """Another for each rank, bucket, step and half."""
        if self._coding.seed is None:
            return NEAREST
        words = (self._coding.seed, job.number, self._size if of_sum else self._rank)
        seed = 0
        for word in words:  # SplitMix64 (Steele, Lea, Flood, 2014)
            seed = (seed + word + 0x9E3779B97F4A7C15) % 2**64
            seed = (seed ^ (seed >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
            seed = (seed ^ (seed >> 27)) * 0x94D049BB133111EB % 2**64
            seed ^= seed >> 31
        return np.uint64(seed or 1)


def _outcome(done: "torch.futures.Future[Any]") -> torch.Tensor:
    """An error is raised here, for a future's own exceptions do not reach DDP."""
    result = done.value()
    if isinstance(result, Exception):
        raise result
    buffer: torch.Tensor = result
    return buffer
