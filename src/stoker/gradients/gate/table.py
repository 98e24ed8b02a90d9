"""Formats what `stoker probe` prints: the links, what bounds a step, and what schemes would gain.

Pure: standard library only.
"""

from typing import NamedTuple

from stoker.gradients.gate.costs import fitted
from stoker.gradients.gate.outlook import WORTH, readable_s
from stoker.tables import aligned


class Size(NamedTuple):
    """Seconds of each collective for a buffer of `nbytes`, the slowest rank's."""

    nbytes: int
    all_reduce_s: float
    all_to_all_s: float
    all_gather_s: float


class Copy(NamedTuple):
    """Seconds of a copy between device and pinned host memory."""

    nbytes: int
    to_device_s: float
    to_host_s: float


class Step(NamedTuple):
    """Seconds of a step's parts, over several steps, the slowest rank's. comm_s: from the first
    bucket's all-reduce to the end of the last; overlap_s: of that, while the backward pass still
    computed."""

    step_s: float
    data_s: float
    forward_s: float
    backward_s: float
    comm_s: float
    overlap_s: float

    @property
    def waits_s(self) -> float:
        """Seconds of waiting for gradients, with nothing else to do."""
        return max(0.0, self.comm_s - self.overlap_s)


class Scheme(NamedTuple):
    """A scheme, and the step expected with it. sent_nbytes: by one rank, a step."""

    name: str
    sent_nbytes: int
    step_s: float


class Measured(NamedTuple):
    """All that a survey has measured. nbytes: of a model's gradients."""

    backend: str
    device: str
    num_ranks: int
    sizes: tuple[Size, ...]
    copies: tuple[Copy, ...]
    num_parameters: int
    nbytes: int
    num_buckets: int
    step: Step
    schemes: tuple[Scheme, ...]


def as_table(name: str, found: Measured) -> str:
    """Format the whole table, which ends with a newline. name: the model's."""
    parts = [_links(found), _copies(found), _step(name, found), _schemes(found), _advice(found)]
    return "\n".join(part for part in parts if part)


def _links(found: Measured) -> str:
    n = found.num_ranks
    rows: list[tuple[str, ...]] = [("buffer", "all_reduce", "", "all_to_all", "", "all_gather", "")]
    for size in found.sizes:
        share = (n - 1) / n * size.nbytes
        rows.append(
            (
                _nbytes(size.nbytes),
                *(readable_s(size.all_reduce_s), _rate(2 * share, size.all_reduce_s)),
                *(readable_s(size.all_to_all_s), _rate(share, size.all_to_all_s)),
                *(readable_s(size.all_gather_s), _rate(share, size.all_gather_s)),
            )
        )
    rows.append(("fitted", *_fitted(found, "all_reduce_s", 2), *_fitted(found, "all_to_all_s", 1)))
    rows[-1] += _fitted(found, "all_gather_s", 1)
    head = (
        f"links of {n} ranks, {found.backend} on {found.device}; rates: what one rank sends; fitted: "
        "latency and rate\n"
    )
    return head + aligned(rows, right=range(len(rows[0])), indent=2)


def _fitted(found: Measured, name: str, num_halves: int) -> tuple[str, str]:
    """Return latency and rate. num_halves: how often a rank sends (n - 1) / n of a buffer."""
    line = fitted([(size.nbytes, getattr(size, name)) for size in found.sizes])
    sent = num_halves * (found.num_ranks - 1) / found.num_ranks
    rate = _rate(sent, line.s_per_nbyte) if line.s_per_nbyte else ""
    return readable_s(line.fixed_s), rate


def _copies(found: Measured) -> str:
    if not found.copies:
        return "no copies between host and device: the model is on the CPU\n"
    rows: list[tuple[str, ...]] = [("buffer", "host to device", "", "device to host", "")]
    for copy in found.copies:
        to_device = readable_s(copy.to_device_s), _rate(copy.nbytes, copy.to_device_s)
        to_host = readable_s(copy.to_host_s), _rate(copy.nbytes, copy.to_host_s)
        rows.append((_nbytes(copy.nbytes), *to_device, *to_host))
    return "copies from and to pinned memory\n" + aligned(rows, right=range(len(rows[0])), indent=2)


def _step(name: str, found: Measured) -> str:
    shares = shares_of(found.step)
    parts = ", ".join(f"{what} {readable_s(seconds)}" for what, seconds in shares.items())
    return (
        f"a step of {name}, {found.num_parameters:,} parameters in {found.num_buckets} buckets: "
        f"{readable_s(found.step.step_s)}\n  {parts}\n"
    )


def shares_of(step: Step) -> dict[str, float]:
    """Return the seconds of each part of a step, in its order."""
    known = {
        "waits for data": step.data_s,
        "forward": step.forward_s,
        "backward": step.backward_s,
        "waits for gradients": step.waits_s,
    }
    return known | {"the rest": max(0.0, step.step_s - sum(known.values()))}


def _schemes(found: Measured) -> str:
    step_s = found.step.step_s
    raw_nbytes = 2 * (found.num_ranks - 1) * found.nbytes // found.num_ranks
    rows: list[tuple[str, ...]] = [("--gradients", "a rank sends", "a step", "times as fast")]
    rows.append(("(none)", _nbytes(raw_nbytes), f"{readable_s(step_s)}, measured", ""))
    for each in found.schemes:
        gain = f"{step_s / each.step_s:.2f}"
        sent = _nbytes(each.sent_nbytes)
        rows.append((each.name, sent, f"{readable_s(each.step_s)}, estimated", gain))
    return aligned(rows, right=range(len(rows[0])), indent=2)


def _advice(found: Measured) -> str:
    """Say what bounds the step, and what to do about it."""
    step, shares = found.step, shares_of(found.step)
    most = max(shares, key=lambda what: shares[what])
    text = f"bound by: {most} ({shares[most] / step.step_s:.0%} of a step)"
    if most == "waits for data":
        text += "; stoker run is made for that"
    best = min(found.schemes, key=lambda scheme: scheme.step_s)
    if step.step_s < WORTH * best.step_s:
        return f"{text}; fewer bits would gain little here\n"
    return f"{text}; try: stoker run --gradients {best.name} (with loss: docs/gradients.md)\n"


def _rate(nbytes: float, seconds: float) -> str:
    mb_per_s = 1e-6 * nbytes / seconds
    return f"{mb_per_s / 1e3:.3g} GB/s" if mb_per_s >= 1e3 else f"{mb_per_s:.3g} MB/s"


def _nbytes(nbytes: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if nbytes < 1024:
            return f"{nbytes:.3g} {unit}"
        nbytes /= 1024
    return f"{nbytes:.3g} GiB"
