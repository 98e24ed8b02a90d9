"""Decides which buckets are compressed, and how: by measured costs, until a trial has ended.

All ranks come to the same answers, for the same buckets.
"""

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import torch

from stoker.gradients.codes import Code
from stoker.gradients.gate.costs import Costs, best
from stoker.gradients.gate.probe import Probe
from stoker.gradients.gate.trial import Trial, TrialResult


class Picker:
    """Decides which buckets are compressed, and how.

    tell: called once with the trial's result; None: no bucket was worth a trial.
    Owner: the thread that issues the model's collectives.
    """

    def __init__(
        self, group: Any, device: torch.device, tell: Callable[[TrialResult | None], None]
    ) -> None:
        self._probe, self._tell = Probe(group, device), tell
        self._trial = Trial()
        self._last_s: float | None = None
        self._is_dropped = False
        self._costs: Costs | None = None
        self._best: dict[tuple[int, ...], Code | None] = {}  # by lengths and codes

    @property
    def is_over(self) -> bool:
        """Whether nothing is left to decide."""
        return self._is_dropped or self._trial.verdict is not None

    def meet(self) -> None:
        """Measure the costs, before the first bucket."""
        self._costs = self._probe.measure()

    def next_step(self, at_s: float) -> bool:
        """Begin a step at `at_s`. Returns whether no bucket will be compressed any more."""
        last_s, self._last_s = self._last_s, at_s
        if last_s is None or self._is_dropped:
            return self._is_dropped
        if set(self._best.values()) == {None}:
            self._is_dropped = True
            self._told(None)
        elif self._trial.step(at_s - last_s):
            self._trial.judge(*self._probe.slowest([*self._trial.medians()]))
            if self._trial.verdict is not None:
                self._is_dropped = not self._trial.verdict.is_coded
                self._told(self._trial.verdict)
        return self._is_dropped

    def _told(self, verdict: TrialResult | None) -> None:
        with contextlib.suppress(Exception):  # what cannot be written must not end a step
            self._tell(verdict)

    def cap(self, lengths: Sequence[int], codes: Sequence[Code]) -> Code | None:
        """Return the code with the fewest bits allowed for a bucket in this step; None: none."""
        if self._is_dropped or not self._trial.is_coded:
            return None
        key = (*lengths, *codes)
        if key not in self._best:
            assert self._costs is not None
            self._best[key] = best(self._costs, lengths, codes)
        return self._best[key]
