"""Predicts how fast a script will train with its batches made in other ways. Pure.

A step takes as long as the slowest of three: the training process with a batch at hand, which was measured with batches
that cost nothing; making the batch, which was measured while nothing was trained; and the work of both, where they
share the cores.
"""

import math
from dataclasses import replace
from typing import NamedTuple

from stoker.doctor.facts import Facts, Kept, Trial

# What is left of the sum of two things that go on at once on the same cores: caches, memory, the scheduler.
LOSS = 0.95
# Two parts of a step that take about as long (the longer one CLOSE times at most) hinder each other by up to this.
CLOSE, HINDER = 1.25, 0.2
GRADIENT_BITS = {
    "bf16": 16,
    "8bit": 8,
    "4bit": 4,
}  # of an element, which has 32 (gradients/codes.py)
LEAST_COMM = 0.1  # of a step
AWAY_LOSS = 0.8  # of the speed with free data, with batches that come from other machines
CODED = 0.95  # of the bytes: what the codec leaves more of is not told
LATER = "remembered: the speed once every sample has been made"
SPARE = 1.1  # so many more workers there than are enough


class Prediction(NamedTuple):
    """Says what something would bring. low, high: samples a second; needs: what else is to be known of it; num_away:
    CPUs of other machines; note: a line on it, if there is more to know; is_lossy: what is computed differs."""

    name: str
    flags: str
    low: float
    high: float
    needs: str = ""
    num_away: int = 0
    note: str = ""
    is_lossy: bool = False

    @property
    def rate(self) -> float:
        """The middle of the range."""
        return math.sqrt(self.low * self.high)


def predictions(facts: Facts) -> list[Prediction]:
    """Return what was tried and what can be computed of it, the fastest first; what needs other machines comes last."""
    if facts.free is None or not facts.free.num:
        return []
    works = [trial for trial in facts.trials if not trial.why and trial.rate]
    found = [_of(facts, trial) for trial in works]
    if works and facts.kept is not None and facts.kept.serves:
        best = max(works, key=lambda trial: trial.rate)
        later = replace(
            best,
            name=f"{best.name}, remembered",
            rate=_kept_rate(facts, facts.kept, best),
            start_s=facts.kept.start_s,
        )
        found.append(_of(facts, later, _memory(facts, facts.kept))._replace(note=LATER))
    away = _away(facts) if works else None  # what is left to torch is so with --cluster, too
    found += [] if away is None else [away]
    return sorted([*found, *_compressed(facts)], key=lambda each: (each.num_away > 0, -each.rate))


def step_s(facts: Facts, data_rate: float, work_s: float) -> tuple[float, float]:
    """Return how long a step takes at best, and at worst, with batches that are made at this rate while nothing is
    trained. work_s: CPU time that making one takes of this machine."""
    free = facts.free
    assert free is not None and free.num
    busy_s, cpu_s = free.wall_s / free.num, free.cpu_s / free.num
    batch_s, both_s = free.num_samples / free.num / data_rate, (work_s + cpu_s) / facts.setup.cores
    _, second_s, best_s = sorted((busy_s, batch_s, both_s))
    hindered = 1.0 + HINDER if best_s < CLOSE * second_s else 1.0
    return best_s, best_s * hindered / LOSS


def enough(sample_s: float, rate: float) -> int:
    """Return how many processes make so many samples a second, with some to spare."""
    return max(1, -int(-SPARE * sample_s * rate // 1))


def _of(facts: Facts, trial: Trial, needs: str = "") -> Prediction:
    assert facts.free is not None
    size, rate = facts.free.num_samples / facts.free.num, trial.rate
    if trial.num_workers:
        work_s = min(trial.num_workers, facts.setup.cores) * size / rate
    else:  # the loop's own time is in the rate
        work_s = size * facts.costs.cpu_s if facts.costs else 0.0
    best_s, worst_s = step_s(facts, rate, work_s)
    low, high = (
        _with_starts(facts, rate, trial.start_s) for rate in (size / worst_s, size / best_s)
    )
    return Prediction(trial.name, trial.flags, low, high, needs)


def _with_starts(facts: Facts, rate: float, start_s: float) -> float:
    """Return the rate over whole epochs, each of which waits so long for its first batch."""
    num = facts.setup.num_samples
    return num / (num / rate + start_s) if num else rate


def _kept_rate(facts: Facts, kept: Kept, trial: Trial) -> float:
    """Return the rate at which batches come where a part of the samples has room in the memory."""
    share = min(1.0, kept.budget_nbytes / max(1.0, facts.setup.num_samples * kept.nbytes))
    return 1.0 / (share / kept.rate + (1.0 - share) / trial.rate)


def _memory(facts: Facts, kept: Kept) -> str:
    nbytes = facts.setup.num_samples * kept.nbytes
    wants = f"{readable(nbytes)} memory"
    if nbytes <= kept.budget_nbytes:
        return wants
    return f"{wants}: {readable(kept.budget_nbytes)} unless --cache-memory"


def _away(facts: Facts) -> Prediction | None:
    """Return what CPUs of other machines would bring: as many as are enough."""
    free, costs = facts.free, facts.costs
    if free is None or costs is None or costs.why or not costs.sample_s:
        return None
    if AWAY_LOSS * free.rate < facts.plain.rate:
        return None  # it may be slower than it is
    num = enough(costs.sample_s, free.rate)
    gbit = free.rate * costs.nbytes * 8 / 1e9
    needs = f"{gbit:.2g} Gbit/s"
    is_coded = 0 < costs.coded_frac < CODED
    note = (
        f"the lossless codec makes {gbit * costs.coded_frac:.2g} of the {needs}" if is_coded else ""
    )
    return Prediction(
        f"{num} CPU{'s' * (num > 1)} of other machines", f"--cluster ADDRESS --workers {num}",
        AWAY_LOSS * free.rate, free.rate, needs, num, note,
    )  # fmt: skip


def _compressed(facts: Facts) -> list[Prediction]:
    """Return what compressed gradients could bring: nothing, or all of what their bytes take on the links."""
    plain = facts.plain
    comm_s = plain.split.communication_s
    if facts.setup.world_size == 1 or comm_s < LEAST_COMM * plain.wall_s:
        return []
    return [
        Prediction(
            f"--gradients {name}", f"--gradients {name}", plain.rate,
            plain.num_samples / (plain.wall_s - comm_s * (1 - bits / 32)),
            "with loss; stoker probe measures it", is_lossy=True,
        )
        for name, bits in GRADIENT_BITS.items()
    ]  # fmt: skip


def readable(nbytes: float) -> str:
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("KB", 1e3)):
        if nbytes >= size:
            return f"{nbytes / size:.3g} {unit}"
    return f"{nbytes:.0f} bytes"
