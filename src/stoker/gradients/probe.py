"""What the links between the ranks and the kernels take, in a second or so, and what is made of that.

Collective: every rank of a group calls these at the same places, and all get the same numbers,
those of the slowest.
"""

import contextlib
import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from stoker.clock import now_s
from stoker.gradients.codes import Code
from stoker.gradients.gate import Costs, Trial, Verdict, best, fitted
from stoker.gradients.kernels_cpu import NEAREST, dequantise, quantise, reduce
from stoker.gradients.layout import Segment, layout_of

LIMIT_S = 0.8  # with what the last size takes, about a second
NUM_TIMES = 3  # of which the fastest counts: what else runs only slows
FIRST_NBYTES = 16 << 10
GROWTH = 4  # from one size to the next
MOST_NBYTES = 64 << 20
KERNEL_LEN = 1 << 18  # elements


class Probe:
    """sizes: what was measured: bytes, seconds of an all-reduce, seconds of both our halves."""

    def __init__(self, group: Any) -> None:
        self._group, self._size = group, group.size()
        self.sizes: list[tuple[int, float, float]] = []

    def measure(self) -> Costs:
        begin_s = now_s()
        nbytes = FIRST_NBYTES
        self._links_s(nbytes)  # memory is touched
        num_times = NUM_TIMES
        while nbytes <= MOST_NBYTES:
            times = [self._links_s(nbytes) for _ in range(num_times)]
            own = [min(each) for each in zip(*times, strict=True)]
            *found, spent_s = self.slowest([*own, now_s() - begin_s])
            self.sizes.append((nbytes, found[0], found[1]))
            next_s = GROWTH * sum(found)
            if spent_s + next_s > LIMIT_S:
                break
            num_times = NUM_TIMES if spent_s + NUM_TIMES * next_s < LIMIT_S else 1
            nbytes *= GROWTH
        kernels_s = self.slowest([_kernels_s(code) for code in Code])
        return Costs(
            fitted([(nbytes, s) for nbytes, s, _ in self.sizes]),
            fitted([(nbytes, s) for nbytes, _, s in self.sizes]),
            dict(zip(Code, kernels_s, strict=True)),
        )

    def slowest(self, seconds: list[float]) -> list[float]:
        """Of each, the most that any rank took."""
        told = torch.tensor(seconds, dtype=torch.float64)
        options: Any = dist.AllreduceOptions()
        options.reduceOp = dist.ReduceOp.MAX
        self._group.allreduce([told], options).wait()
        return [float(each) for each in told.tolist()]

    def _links_s(self, nbytes: int) -> tuple[float, float]:
        whole = torch.zeros(nbytes // 4)
        share = -(-nbytes // self._size)
        sent = torch.zeros(self._size * share, dtype=torch.uint8)
        received = torch.zeros_like(sent)
        self._group.barrier().wait()
        all_reduce_s = _timed(lambda: self._group.allreduce([whole]).wait())
        self._group.barrier().wait()

        def exchange() -> None:
            self._group.alltoall_base(received, sent, [], []).wait()
            self._group._allgather_base(received, sent[:share]).wait()

        return all_reduce_s, _timed(exchange)


class Picker:
    """Says which buckets are coded, and how. tell: hears the trial's verdict, once; None: no bucket
    was worth a trial.

    Owner: the exchange's thread.
    """

    def __init__(self, group: Any, tell: Callable[[Verdict | None], None]) -> None:
        self._probe, self._tell = Probe(group), tell
        self._trial = Trial()
        self._last_s: float | None = None
        self._is_over = False
        self._costs: Costs | None = None
        self._best: dict[tuple[int, ...], Code | None] = {}  # by lengths and codes

    def meet(self) -> None:
        """Before the first bucket."""
        self._costs = self._probe.measure()

    def next_step(self, at_s: float) -> bool:
        """The first bucket of a step came at this time. Whether none will be coded any more."""
        last_s, self._last_s = self._last_s, at_s
        if last_s is None or self._is_over:
            return self._is_over
        if set(self._best.values()) == {None}:
            self._is_over = True
            self._told(None)
        elif self._trial.step(at_s - last_s):
            self._trial.judge(*self._probe.slowest([*self._trial.medians()]))
            if self._trial.verdict is not None:
                self._is_over = not self._trial.verdict.is_coded
                self._told(self._trial.verdict)
        return self._is_over

    def _told(self, verdict: Verdict | None) -> None:
        with contextlib.suppress(Exception):  # what cannot be written must not end a step
            self._tell(verdict)

    def cap(self, lengths: Sequence[int], codes: Sequence[Code]) -> Code | None:
        """Of a bucket, in this step: no code with fewer bits; None: no codes."""
        if self._is_over or not self._trial.is_coded:
            return None
        key = (*lengths, *codes)
        if key not in self._best:
            assert self._costs is not None
            self._best[key] = best(self._costs, lengths, codes)
        return self._best[key]


def _timed(action: Callable[[], object]) -> float:
    begin_s = now_s()
    action()
    return now_s() - begin_s


def _kernels_s(code: Code) -> float:
    """An element's, in one reduction: coded, a share of it added up, and read."""
    layout = layout_of([Segment(0, KERNEL_LEN, code)], 1)
    values, none = np.ones(KERNEL_LEN, np.float32), np.empty(0, np.float32)
    message = np.zeros(layout.message_nbytes, np.uint8)
    again = np.zeros_like(message)
    actions = (
        functools.partial(quantise, values, layout.blocks, message, none, NEAREST),
        functools.partial(reduce, message, 1, layout.blocks, np.float32(1), again, NEAREST),
        functools.partial(dequantise, message, layout.blocks, values),
    )
    # Adding up reads a message of each rank, of 1 / size of the elements: as many as there are.
    return sum(min(_timed(action) for _ in range(3)) for action in actions) / KERNEL_LEN
