"""Whether compressing gains: what each code of each bucket should cost, and a trial that decides.

The model of the costs only says what is worth a trial. The trial times real steps, in turn with and
without codes, and codes that are not clearly faster are dropped: they are a loss of accuracy for
nothing. All ranks are fed the same numbers, and so come to the same answers.
Pure: standard library only.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import NamedTuple

from stoker.gradients.codes import Code

# Chosen, and not measured: what a user would call faster, and what noise of 10 % a step allows.
NUM_WARM = 3  # steps; buckets are built anew after the first, and memory is touched
NUM_TIMED = 3  # steps of one way in a row, after one that is not counted: the other's tail
MAX_ROUNDS = 4
CLEAR = 1.3  # times faster: one round is enough
GAIN = 1.03  # times faster that codes must be
DOUBT = 2.0  # times slower by the model, and still tried: buffers flatter a link that is probed


class Line(NamedTuple):
    """Seconds for so many bytes: a latency and a rate."""

    fixed_s: float
    s_per_nbyte: float

    def at(self, nbytes: float) -> float:
        return self.fixed_s + self.s_per_nbyte * nbytes


def fitted(points: Sequence[tuple[float, float]]) -> Line:
    """The line of least squares through (bytes, seconds), each point's error as a share of it."""
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
    """Between these ranks. all_reduce: of a buffer's bytes; exchange: both halves of ours, of all
    messages' bytes; kernels_s: an element's, of one rank's share of the work."""

    all_reduce: Line
    exchange: Line
    kernels_s: Mapping[Code, float]

    def plain_s(self, lengths: Iterable[int]) -> float:
        return self.all_reduce.at(4 * sum(lengths))

    def coded_s(self, lengths: Sequence[int], codes: Sequence[Code]) -> float:
        pairs = list(zip(lengths, codes, strict=True))
        nbytes = sum(length * code / 8 for length, code in pairs)
        return self.exchange.at(nbytes) + sum(n * self.kernels_s[code] for n, code in pairs)


def capped(codes: Sequence[Code], cap: Code) -> list[Code]:
    """None with fewer bits than the cap has."""
    return [max(code, cap) for code in codes]


def best(costs: Costs, lengths: Sequence[int], codes: Sequence[Code]) -> Code | None:
    """The cap of one bucket: what should be fastest of what is permitted; None: no codes.

    codes: each parameter's, with as few bits as is permitted.
    """
    caps = [code for code in Code if code is not Code.FP32 and code >= min(codes)]
    if not caps:
        return None
    cap = min(caps, key=lambda each: costs.coded_s(lengths, capped(codes, each)))
    is_hopeless = costs.coded_s(lengths, capped(codes, cap)) > DOUBT * costs.plain_s(lengths)
    return None if is_hopeless else cap


class Verdict(NamedTuple):
    """Medians of a step, and whether codes stay."""

    is_coded: bool
    plain_s: float
    coded_s: float


@dataclass
class Trial:
    """Which way each step goes. One `step` a step, then, where it says so, one `judge`."""

    verdict: Verdict | None = None
    is_coded: bool = True
    _num: int = 0  # steps that have ended, since the warm ones
    _times: dict[bool, list[float]] = field(default_factory=lambda: {True: [], False: []})
    _num_warm: int = NUM_WARM

    def step(self, seconds: float) -> bool:
        """A step has ended. Whether a round has too: then `judge` before the next one."""
        if self.verdict is not None:
            return False
        if self._num_warm:
            self._num_warm -= 1
            self.is_coded = self._num_warm > 0
            return False
        place = self._num % (NUM_TIMED + 1)
        if place:  # the first of a row is not counted
            self._times[self.is_coded].append(seconds)
        self._num += 1
        if place == NUM_TIMED:
            self.is_coded = not self.is_coded
        return self._num % (2 * (NUM_TIMED + 1)) == 0

    def medians(self) -> tuple[float, float]:
        """This rank's: a step without codes, and one with."""
        return median(self._times[False]), median(self._times[True])

    def judge(self, plain_s: float, coded_s: float) -> None:
        """By what all ranks took, the same numbers on each."""
        num_rounds = self._num // (2 * (NUM_TIMED + 1))
        gain = plain_s / coded_s
        if num_rounds >= MAX_ROUNDS or not 1 / CLEAR < gain < CLEAR:
            self.verdict = Verdict(gain >= GAIN, plain_s, coded_s)
            self.is_coded = self.verdict.is_coded
