"""Measures the links between the ranks, and the kernels, in about a second.

Collective: every rank of a group makes these calls in the same order, and all get the same numbers,
those of the slowest.
"""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from stoker.clock import now_s
from stoker.gradients.blocks import NEAREST, Segment, layout_of, loops_for
from stoker.gradients.codes import Code
from stoker.gradients.gate.costs import Costs, fitted
from stoker.gradients.gate.table import Copy, Size

LIMIT_S = 0.8  # with what the kernels take, about a second
NUM_TIMES = 3  # of which the fastest counts: what else runs only slows
FIRST_NBYTES = 16 << 10
GROWTH = 4  # from one size to the next
MOST_NBYTES = 64 << 20
KERNEL_LEN = 1 << 18  # elements


class Probe:
    """Measures a process group's links and kernels. sizes: what was measured.

    group: a process group of torch's; device: on which its ranks' gradients lie.
    """

    def __init__(self, group: Any, device: torch.device) -> None:
        self._group, self._device, self._size = group, device, group.size()
        self.sizes: list[Size] = []

    def measure(self, limit_s: float = LIMIT_S) -> Costs:
        """Measure the links, in about `limit_s`, and the kernels; return the costs."""
        begin_s = now_s()
        nbytes = FIRST_NBYTES
        self._links_s(nbytes)  # memory is touched
        num_times = NUM_TIMES
        while nbytes <= MOST_NBYTES:
            times = [self._links_s(nbytes) for _ in range(num_times)]
            own = [min(each) for each in zip(*times, strict=True)]
            *found, spent_s = self.slowest([*own, now_s() - begin_s])
            self.sizes.append(Size(nbytes, *found))
            next_s = GROWTH * sum(found)
            if spent_s + next_s > limit_s:
                break
            num_times = NUM_TIMES if spent_s + NUM_TIMES * next_s < limit_s else 1
            nbytes *= GROWTH
        kernels_s = self.slowest([_kernels_s(code, self._device) for code in Code])
        return Costs(
            fitted([(each.nbytes, each.all_reduce_s) for each in self.sizes]),
            fitted([(each.nbytes, each.all_to_all_s + each.all_gather_s) for each in self.sizes]),
            dict(zip(Code, kernels_s, strict=True)),
            self.sizes[-1].nbytes,
        )

    def slowest(self, seconds: list[float]) -> list[float]:
        """Return, for each number, the largest of any rank."""
        told = torch.tensor(seconds, dtype=torch.float64, device=self._device)
        options: Any = dist.AllreduceOptions()
        options.reduceOp = dist.ReduceOp.MAX
        self._group.allreduce([told], options).wait()
        return [float(each) for each in told.tolist()]

    def _links_s(self, nbytes: int) -> list[float]:
        whole = torch.zeros(nbytes // 4, device=self._device)
        share = -(-nbytes // self._size)
        sent = torch.zeros(self._size * share, dtype=torch.uint8, device=self._device)
        received = torch.zeros_like(sent)
        collectives = (
            lambda: self._group.allreduce([whole]).wait(),
            lambda: self._group.alltoall_base(received, sent, [], []).wait(),
            lambda: self._group._allgather_base(received, sent[:share]).wait(),
        )
        seconds = []
        for collective in collectives:
            self.slowest([0.0])  # all begin together
            seconds.append(_timed(collective, self._device))
        return seconds


Copies = tuple[Copy, ...]


def copies_of(device: torch.device) -> Copies:
    """Time copies to and from an accelerator, of sizes that can be pinned; none for a CPU."""
    found: list[Copy] = []
    for nbytes in (64 << 10, 1 << 20, 16 << 20, 256 << 20) if device.type == "cuda" else ():
        try:
            host = torch.empty(nbytes, dtype=torch.uint8, pin_memory=True)
        except RuntimeError:
            break
        there = host.to(device)
        ways = functools.partial(there.copy_, host), functools.partial(host.copy_, there)
        found.append(Copy(nbytes, *(min(_timed(each, device) for _ in range(5)) for each in ways)))
    return tuple(found)


def _timed(action: Callable[[], object], device: torch.device) -> float:
    """Time an action to its end, even if the call only starts it."""
    begin_s = now_s()
    action()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return now_s() - begin_s


def _kernels_s(code: Code, device: torch.device) -> float:
    """Return seconds an element in one reduction: quantised, a share added up, dequantised."""
    loops = loops_for(device)
    layout = layout_of([Segment(0, KERNEL_LEN, code)], 1)
    table = loops.table_of(layout.blocks, device)
    values = loops.given(torch.ones(KERNEL_LEN, device=device))
    none = loops.given(torch.empty(0, device=device))
    message, again = (
        loops.given(torch.zeros(layout.message_nbytes, dtype=torch.uint8, device=device))
        for _ in range(2)
    )
    actions = (
        functools.partial(loops.quantise, values, table, message, none, NEAREST),
        functools.partial(loops.reduce, message, 1, table, np.float32(1), again, NEAREST),
        functools.partial(loops.dequantise, message, table, values),
    )
    # Adding up reads a message of each rank, of 1 / size of the elements: as many as there are.
    return sum(min(_timed(each, device) for _ in range(3)) for each in actions) / KERNEL_LEN
