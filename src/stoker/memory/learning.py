"""Learns of a dataset's first samples, in one worker: where they draw, and whether more than their index
decides them.

Promise: a sample is what the dataset makes.
Owner: the worker's main thread.
"""

from typing import Any

from stoker.clock import now_s
from stoker.fingerprint.fingerprint import Apart
from stoker.memory import phases
from stoker.memory.cut import Split
from stoker.memory.desk import Desk, Tally
from stoker.memory.watch import Finding, Generators, Lesson, State, state_of

_COMPARED = (0, 1, 4, 15)  # samples under watch, at which all that the dataset reaches is compared
_MAX_OPEN = 8  # samples under watch, of which those do not count that show where to look further


class Learning:
    """generators: that a sample may draw from, as far as is known."""

    def __init__(self, desk: Desk, dataset: Any, tally: Tally) -> None:
        self._desk, self._dataset, self._tally = desk, dataset, tally
        self.generators = Generators(desk.look, [])
        self._reached: list[Any] = []  # of these, what the dataset reaches
        self._num_watched = 0  # samples, by this worker
        self._watched_s = 0.0
        self._compared_draw = -1  # first draw that was known when fingerprints were last compared

    def state(self, leaves_scratch_out: bool = False) -> State:
        """Return the state of all that the dataset reaches, but its generators. Raises Unwatchable."""
        apart = Apart(leaves_scratch_out=leaves_scratch_out)
        allowed_s = phases.look_s(self._tally.known()[0])
        lasts = self._desk.stores.lasts
        state = state_of({"dataset": self._dataset}, apart, allowed_s, lasts)
        if list(map(id, apart.generators)) != list(map(id, self._reached)):
            self._reached = apart.generators
            self.generators = Generators(self._desk.look, apart.generators)
        return state

    def lesson(self) -> Lesson:
        """Return what watches the next sample. Raises Unwatchable."""
        desk = self._desk
        desk.watch_readers()
        counts, _ = self._tally.known()
        if not self._num_watched:
            self.state()  # also for the generators that it finds
        # Also when the place at which to compare is known better.
        compares = self._num_watched in _COMPARED or counts.first_draw != self._compared_draw
        if compares:
            self._compared_draw = counts.first_draw
        profiles = phases.may_profile(counts, self._watched_s, phases.epoch_s(counts))
        state = self.state if compares else None
        look = self.generators.look
        return Lesson(look, desk.opened, state, counts.first_draw, profiles, desk.trusted)

    def make(self, lesson: Lesson, index: Any, split: Split | None) -> tuple[Any, Finding]:
        """Return the sample and what was found. Raises what the dataset raises."""
        began_s = now_s()
        sample, finding = lesson.make(self._dataset, index, split)
        self._watched_s += now_s() - began_s
        self._num_watched += 1
        return sample, finding

    def note(self, finding: Finding) -> None:
        """Count what was found, for all workers."""
        first_draw = min(self._tally.counts.first_draw, phases.packed(finding.drew))
        self._tally.put(first_draw=first_draw)
        if finding.is_disturbed:
            self._compared_draw = -1
        is_counted = finding.is_final or self._num_watched > _MAX_OPEN
        self._tally.count(num_learnt=int(is_counted), num_of_session=int(finding.is_of_session))
