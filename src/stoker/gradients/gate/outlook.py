"""Estimates what compression would gain, from DDP's own timings: nothing is sent or tried.

Pure: standard library only.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

NUM_FIRST = 3  # steps that are not looked at: buckets are built anew, memory is touched
NUM_TIMED = 3  # steps that DDP has timed between two looks, at least
WORTH = 1.1  # times faster: less is not promised, for this is an estimate
# Seconds an element takes to be coded, added up and read. cpu: twice what benchmarks/gradient_kernels.py
# has measured, for what else runs; cuda: assumed, 12 bytes an element at a quarter of 1 TB/s.
KERNELS_S = {"cpu": 1.5e-9, "cuda": 5e-11}


class Seen(NamedTuple):
    """DDP's own timings, in seconds. at_s: when the last timed step, number `step`, began.

    comm_s: from a step's first all-reduce to the end of its last; overlap_s: the part of that
    during which the backward pass still computed.
    """

    step: int
    at_s: float
    comm_s: float
    overlap_s: float
    num_buckets: int
    forward_s: float = 0.0
    backward_s: float = 0.0

    @property
    def is_past_first(self) -> bool:
        return self.step >= NUM_FIRST

    @property
    def num_timed(self) -> int:
        """Steps of which comm_s and overlap_s are the means: the first ten, then each hundredth."""
        return min(self.step, 10) + self.step // 100


def seen(data: Mapping[str, Any], prefix: str = "") -> Seen:
    """Read DDP's timings from `_get_ddp_logging_data` (torch/csrc/distributed/c10d/logger.cpp,
    2.13): nanoseconds of the first ten steps, and of each hundredth after them. prefix: `avg_`: the
    mean."""
    taken = ("comm", "compute_comm_overlap")
    comm_s, overlap_s = (1e-9 * data.get(f"{prefix}backward_{what}_time", 0) for what in taken)
    return Seen(
        step=data.get("iteration", 0),
        at_s=1e-9 * data.get("forward_compute_time_start", 0),
        comm_s=comm_s,
        overlap_s=overlap_s,
        num_buckets=data.get("num_buckets_reduced", 0),
        forward_s=1e-9 * data.get(f"{prefix}forward_compute_time", 0),
        backward_s=1e-9 * data.get(f"{prefix}backward_compute_time", 0),
    )


class Sent(NamedTuple):
    """Counts what all ranks of a model send in a step. num: elements; frac: of their bytes that codes
    leave."""

    num: int
    frac: float
    device: str


class Outlook(NamedTuple):
    """The estimate for one step. waits_s: for gradients, with nothing else to do; coded_s: what the
    step should take with compression."""

    step_s: float
    waits_s: float
    coded_s: float

    @property
    def gain(self) -> float:
        return self.step_s / self.coded_s


def outlook_of(first: Seen, last: Seen, sent: Sent) -> Outlook | None:
    """Estimate from the steps between two readings; None if they are too few to tell."""
    num_timed = last.num_timed - first.num_timed
    if not first.is_past_first or num_timed < NUM_TIMED or not last.num_buckets:
        return None
    step_s = (last.at_s - first.at_s) / (last.step - first.step)

    def between(name: str) -> float:
        """Return the mean since the first reading: before, a rank may have come late."""
        until_last, until_first = (
            float(getattr(each, name)) * each.num_timed for each in (last, first)
        )
        return max(0.0, until_last - until_first) / num_timed

    plain_s = between("comm_s")
    waits_s = min(max(0.0, plain_s - between("overlap_s")), step_s)
    comm_s = plain_s * sent.frac + sent.num * KERNELS_S[sent.device]
    # As if the backward pass hid nothing of it: what is told should come. Of 25M parameters on 1 Gbit/s
    # this said 0.33 s a step, and 0.34 s came; with what is hidden it would have said 0.22 s.
    return Outlook(step_s, waits_s, step_s - waits_s + min(comm_s, waits_s))


def words(found: Outlook) -> str:
    """Describe an estimate in one line for the user."""
    step, waits, coded = map(readable_s, (found.step_s, found.waits_s, found.coded_s))
    head = f"a step of {step} waits {waits} for them"
    if found.gain < WORTH:
        return f"{head}: fewer bits would gain little here"
    return (
        f"{head}; --gradients 4bit, with loss, should make it {coded}, {found.gain:.2g} times as "
        "fast (docs/gradients.md)"
    )


def readable_s(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds >= 1 else f"{1e3 * seconds:.3g} ms"
