"""Estimates what each code of each bucket costs between these ranks: which one is worth a trial.

Pure: standard library only.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from stoker.gradients.codes import Code, capped

DOUBT = 2.0  # times slower, and still tried: chosen, for what is measured in a second is noisy
REACH = 4  # times what was measured, and a line still holds: beyond, buffers flatter a thin link


class Line(NamedTuple):
    """A linear cost: seconds for so many bytes, as a latency and a rate."""

    fixed_s: float
    s_per_nbyte: float

    def at(self, nbytes: float) -> float:
        return self.fixed_s + self.s_per_nbyte * nbytes


def fitted(points: Sequence[tuple[float, float]]) -> Line:
    """Fit a line to (bytes, seconds) by least squares, each error as a share of its point."""
    weights = [1 / seconds**2 for _, seconds in points]
    total = sum(weights)
    x = sum(w * n for w, (n, _) in zip(weights, points, strict=True)) / total
    y = sum(w * s for w, (_, s) in zip(weights, points, strict=True)) / total
    spread = sum(w * (n - x) ** 2 for w, (n, _) in zip(weights, points, strict=True))
    along = sum(w * (n - x) * (s - y) for w, (n, s) in zip(weights, points, strict=True))
    slope = max(0.0, along / spread) if spread else 0.0
    return Line(max(0.0, y - slope * x), slope)


@dataclass(frozen=True)
class Costs:
    """Seconds that collectives and kernels take between these ranks. all_reduce: of a buffer's
    bytes; exchange: both halves of ours, of all messages' bytes; kernels_s: an element's, of one
    rank's share of the work; measured_nbytes: the largest buffer that was sent."""

    all_reduce: Line
    exchange: Line
    kernels_s: Mapping[Code, float]
    measured_nbytes: int

    def plain_s(self, lengths: Iterable[int]) -> float:
        return self.all_reduce.at(4 * sum(lengths))

    def coded_s(self, lengths: Sequence[int], codes: Sequence[Code]) -> float:
        pairs = list(zip(lengths, codes, strict=True))
        nbytes = sum(length * code / 8 for length, code in pairs)
        return self.exchange.at(nbytes) + sum(n * self.kernels_s[code] for n, code in pairs)


def best(costs: Costs, lengths: Sequence[int], codes: Sequence[Code]) -> Code | None:
    """Return one bucket's cap: the code expected to be fastest of those permitted; None: no codes.

    codes: each parameter's, with as few bits as is permitted.
    """
    caps = [code for code in Code if code is not Code.FP32 and code >= min(codes)]
    if not caps:
        return None
    if 4 * sum(lengths) > REACH * costs.measured_nbytes:
        return caps[0]
    cap = min(caps, key=lambda each: costs.coded_s(lengths, capped(codes, each)))
    is_hopeless = costs.coded_s(lengths, capped(codes, cap)) > DOUBT * costs.plain_s(lengths)
    return None if is_hopeless else cap
