"""Runs `stoker probe` in a rank: measures the links, times some plain steps, reports the result.

Promise: gradients are DDP's to the bit; every rank counts the same backward passes, and so all end
together.
Ban: decides nothing; table.py draws the conclusions.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from statistics import median
from typing import Any

import torch

from stoker.clock import now_s
from stoker.gradients.codes import Code
from stoker.gradients.gate.costs import Costs
from stoker.gradients.gate.outlook import Seen
from stoker.gradients.gate.probe import Copies, Probe, copies_of
from stoker.gradients.gate.table import Measured, Scheme, Step

LIMIT_S = 4.0  # for the links: nobody trains meanwhile
NUM_FIRST = 4  # steps that are not looked at: buckets are built anew, memory is touched
NUM_STEPS = 8  # that are; DDP itself times its first ten

# Codes of each parameter, by id, of each scheme.
Schemes = Mapping[str, Mapping[int, Code]]


class Survey:
    """Averages as DDP does, and times the steps.

    group: a process group of torch's that only this uses; read: gives DDP's own times of the last
    step; waited_s: gives the time that this rank's loaders have waited so far; tell: called once
    with what was measured; stop: called after that, when all ranks have told.
    Owner: the thread that calls DDP's hook.
    """

    closes_at_exit = False

    def __init__(
        self,
        group: Any,
        device: torch.device,
        schemes: Schemes,
        read: Callable[[], Seen],
        waited_s: Callable[[], float],
        tell: Callable[[Measured], None],
        stop: Callable[[], None],
    ) -> None:
        self._group, self._device, self._schemes = group, device, schemes
        self._read, self._waited_s, self._tell, self._stop = read, waited_s, tell, stop
        self._probe = Probe(group, device)
        self._costs = self._probe.measure(LIMIT_S)
        self._copies: Copies = copies_of(device)
        self._buckets: list[list[torch.Tensor]] = []  # parameters, of the step that runs
        self._marks: list[Any] = []  # when each of them came
        self._num_steps = 0
        self._begin = 0.0, 0.0  # of the first that counts: when, and waited until then
        self._seen: list[Seen] = []
        self._ready_s: list[list[float]] = []
        self._is_over = False

    def exchange(
        self, parameters: list[torch.Tensor], buffer: torch.Tensor, is_first: bool = True
    ) -> Any:
        """Average as DDP does without a hook (torch/csrc/distributed/c10d/reducer.cpp, 2.13)."""
        if not self._is_over:
            if is_first:  # DDP's times cannot be read in its hook: it holds their lock
                torch.autograd.Variable._execution_engine.queue_callback(self._end_step)
            self._buckets.append(parameters)
            self._marks.append(self._mark())
        work = self._group.allreduce([buffer.mul_(1.0 / self._group.size())])
        return work.get_future().then(lambda done: done.value()[0])

    def close(self) -> None:
        pass

    def _end_step(self) -> None:
        """Note the end of a backward pass. DDP's times are then those of the step before."""
        marks, self._marks = self._marks, []
        buckets, self._buckets = self._buckets, []
        self._num_steps += 1
        if self._num_steps <= NUM_FIRST:
            self._begin = now_s(), self._waited_s()
            return
        seen = self._read()
        if not self._seen or seen.step != self._seen[-1].step:
            self._seen.append(seen)
        self._ready_s.append(_seconds(marks))
        if self._num_steps == NUM_FIRST + NUM_STEPS:
            self._is_over = True
            self._tell(self._measured(buckets))
            self._probe.slowest([0.0])  # nobody is ended before all have told
            self._stop()

    def _mark(self) -> Any:
        if self._device.type != "cuda":
            return now_s()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def _measured(self, buckets: Sequence[Sequence[torch.Tensor]]) -> Measured:
        step = Step(*self._probe.slowest([*self._step()]))
        ready = [each for each in self._ready_s if len(each) == len(buckets)]
        ready_s = [median(each) for each in zip(*ready, strict=True)]
        size = self._group.size()
        return Measured(
            backend=self._group.name(),
            device=self._device.type,
            num_ranks=size,
            sizes=tuple(self._probe.sizes),
            copies=self._copies,
            num_parameters=sum(each.numel() for bucket in buckets for each in bucket),
            nbytes=sum(each.nbytes for bucket in buckets for each in bucket),
            num_buckets=len(buckets),
            step=step,
            schemes=tuple(
                _scheme(name, codes, buckets, ready_s, step, self._costs, size)
                for name, codes in self._schemes.items()
            ),
        )

    def _step(self) -> Step:
        """Return this rank's times: means of steps and waits, medians of what DDP has timed."""
        begin_s, waited_s = self._begin
        step_s = (now_s() - begin_s) / NUM_STEPS
        data_s = (self._waited_s() - waited_s) / NUM_STEPS
        forward_s, backward_s, comm_s, overlap_s = (
            median(getattr(each, name) for each in self._seen)
            for name in ("forward_s", "backward_s", "comm_s", "overlap_s")
        )
        return Step(step_s, data_s, forward_s, backward_s, comm_s, overlap_s)


def _scheme(
    name: str,
    codes: Mapping[int, Code],
    buckets: Sequence[Sequence[torch.Tensor]],
    ready_s: Sequence[float],
    step: Step,
    costs: Costs,
    size: int,
) -> Scheme:
    """Estimate a step with a scheme: its buckets one after the other, each when it is ready."""
    lengths = [[parameter.numel() for parameter in bucket] for bucket in buckets]
    chosen = [[codes[id(parameter)] for parameter in bucket] for bucket in buckets]
    plain = [costs.plain_s(each) for each in lengths]
    coded = [costs.coded_s(*each) for each in zip(lengths, chosen, strict=True)]
    # Beside the backward pass links and kernels are slower than alone: as much as fp32 was.
    slower = max(1.0, step.comm_s / (ready_s[-1] + left_s(ready_s, plain)))
    waits_s = left_s(ready_s, [slower * each for each in coded])
    pairs = zip(chain(*lengths), chain(*chosen), strict=True)
    nbytes = sum(length * code for length, code in pairs) // 8
    return Scheme(name, 2 * (size - 1) * nbytes // size, step.step_s - step.waits_s + waits_s)


def left_s(ready_s: Sequence[float], costs_s: Sequence[float]) -> float:
    """Return the time from the last bucket's being ready until all are averaged, one by one."""
    at_s = 0.0
    for ready, cost in zip(ready_s, costs_s, strict=True):
        at_s = max(at_s, ready) + cost
    return at_s - ready_s[-1]


def _seconds(marks: Sequence[Any]) -> list[float]:
    """Return the seconds of each mark since the first."""
    if isinstance(marks[0], float):
        return [mark - marks[0] for mark in marks]
    marks[-1].synchronize()
    return [1e-3 * marks[0].elapsed_time(mark) for mark in marks]
