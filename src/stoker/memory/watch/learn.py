"""Makes one sample under watch, step by step, to learn where it first draws and what it depends on.

Promise: the sample is the one that the dataset makes; what was learnt of it is for phases.py.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

from stoker.memory.cut import Split, length_of, watched
from stoker.memory.phases import NOWHERE, Depth
from stoker.memory.watch.evidence import Evidence
from stoker.memory.watch.files import Opened
from stoker.memory.watch.positions import Look

Fingerprint = Callable[[], object]  # to be compared


class Finding(NamedTuple):
    """What a sample has shown. why: it depends on more than its index, or changes something;
    is_of_session: it depends on a variable that another run may have otherwise."""

    drew: Depth
    why: str
    is_of_session: bool


class Lesson:
    """One sample under watch. fingerprint: of all that the dataset reaches, or None not to look;
    known: up to where earlier samples drew nothing; profiles: see every function that is called.
    Raises what `fingerprint` raises."""

    def __init__(
        self,
        look: Look,
        opened: Opened,
        fingerprint: Fingerprint | None,
        known: Depth,
        profiles: bool,
        trusted: frozenset[str],
    ) -> None:
        self._look, self._opened = look, opened
        self._fingerprint, self._known = fingerprint, known
        self._state = None if fingerprint is None else fingerprint()
        self._evidence = Evidence(self._tell if profiles else None, trusted)
        self._drew: Depth | None = None
        self._why = ""
        self._step, self._part = 0, NOWHERE
        self._before: object = None

    def make(self, dataset: Any, index: Any, split: Split | None) -> tuple[Any, Finding]:
        """Return the sample and the finding. Raises what the dataset raises."""
        self._before = self._look()
        self._opened.begin()
        try:
            sample = self._made(dataset, index, split)
        finally:
            self._evidence.end()
            paths, trace = self._opened.end()
        self._note_draw()
        if self._drew is None:
            self._compare(Depth(NOWHERE, NOWHERE))
        for asked in self._evidence.asked:
            if not set(asked) & set(paths):
                self._tell("asks for a file's status")
        drew = self._drew or Depth(NOWHERE, NOWHERE)
        return sample, Finding(drew, self._why or trace, self._evidence.is_of_session)

    def _made(self, dataset: Any, index: Any, split: Split | None) -> Any:
        if split is None:
            self._evidence.begin()
            return dataset[index]
        steps = split.stepper(self._watched)(dataset, index)
        try:
            while True:
                self._evidence.begin()
                step = next(steps)
                self._evidence.end()
                self._note_draw()
                self._step, self._part = step, NOWHERE
                self._compare(Depth(step, NOWHERE))
        except StopIteration as done:
            return done.value

    def _watched(self, callee: Any) -> Any:
        """Return what is called in place of a callee: a copy that tells of each of its transforms."""
        if not length_of(callee):
            return callee
        return watched(callee, functools.partial(self._at_part, self._step))

    def _at_part(self, step: int, part: int) -> None:
        if step != self._step:
            return  # one inside another
        self._evidence.end()
        self._note_draw()
        self._part = part
        self._compare(Depth(step, part))
        self._evidence.begin()

    def _note_draw(self) -> None:
        if self._drew is None and self._look() != self._before:
            self._drew = Depth(self._step, self._part)

    def _compare(self, here: Depth) -> None:
        """Compare fingerprints where the prefix ends, as far as is known: it may change nothing."""
        if self._state is None or self._fingerprint is None or self._drew is not None:
            return
        if here == self._known or (here.is_whole and self._known.is_whole):
            try:
                has_changed = self._fingerprint() != self._state
            except Exception as error:  # what could be watched before the sample cannot be now
                self._tell(str(error))
            else:
                if has_changed:
                    self._tell("changes something that the dataset reaches")

    def _tell(self, why: str) -> None:
        if self._drew is None and not self._why:
            self._why = why
