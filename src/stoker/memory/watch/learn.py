"""Makes one sample under watch, step by step, to learn where it first draws and what it depends on.

Promise: the sample is the one that the dataset makes; what was learnt of it is for phases.py.
"""

import functools
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

from stoker.memory.cut import NotCuttable, Split, length_of, split_of, target_of, watched
from stoker.memory.phases import MAX_LEVELS, Depth, Path, depth_of_draw, packed, unpacked
from stoker.memory.watch.evidence import Evidence
from stoker.memory.watch.files import Opened
from stoker.memory.watch.positions import Look

Fingerprint = Callable[..., object]  # to be compared
# What a sample may not do behind its first draw either, as evidence.py says it: it would show twice
# where a sample is made twice, to be compared.
_TRACES = (
    "calls builtins.breakpoint", "calls builtins.input", "calls builtins.print", "calls multiprocessing.",
    "calls posix.lseek", "calls posix.read", "calls posix.write", "calls posixsubprocess.", "calls select.",
    "calls socket.", "calls thread.", "calls warnings.", "calls BufferedWriter.", "calls FileIO.write",
    "calls SimpleQueue.", "calls TextIOWrapper.", "calls Thread.",
)  # fmt: skip


class Finding(NamedTuple):
    """What a sample has shown. drew: where, empty if nowhere; is_final: nobody could look further
    inside; why: it depends on more than its index, or changes something; is_of_session: it depends
    on a variable that another run may have otherwise; is_disturbed: what it changes is not known, for
    it has imported something, and the next one is to be compared."""

    drew: Path
    is_final: bool
    why: str
    is_of_session: bool
    is_disturbed: bool = False


class Lesson:
    """One sample under watch. fingerprint: of all that the dataset reaches, or None not to look; it may
    be asked to leave out what libraries' objects note for themselves;
    first_draw: of earlier samples, packed; profiles: see every function that is called.
    Raises what `fingerprint` raises.

    What a step calls is looked into if earlier samples have drawn there: so that each sample looks
    one function deeper, and no other source is read.
    """

    def __init__(
        self,
        look: Look,
        opened: Opened,
        fingerprint: Fingerprint | None,
        first_draw: int,
        profiles: bool,
        trusted: frozenset[str],
    ) -> None:
        self._look, self._opened = look, opened
        self._fingerprint, self._first_draw = fingerprint, first_draw
        self._known: Depth | None = depth_of_draw(first_draw)
        self._state = None if fingerprint is None else fingerprint()
        self._whole = None if fingerprint is None else fingerprint(leaves_scratch_out=True)
        self._num_modules = len(sys.modules)
        self._is_disturbed = False
        self._evidence = Evidence(self._tell if profiles else None, trusted)
        self._drew: Path | None = None
        self._here: Path = (0,)
        self._not_entered: set[Path] = set()
        self._why = self._trace = ""
        self._heard: list[str] = []  # in this part of the sample
        self._before: object = None

    def make(self, dataset: Any, index: Any, split: Split | None) -> tuple[Any, Finding]:
        """Return the sample and the finding. Raises what the dataset raises."""
        self._before = self._look()
        self._opened.begin()
        self._evidence.begin()
        try:
            sample = self._made(dataset, index, split)
        finally:
            self._evidence.end()
            paths, trace = self._opened.end()
        self._note_draw()
        if self._drew is None:
            self._compare(())
        for asked in self._evidence.asked:
            if not set(asked) & set(paths):
                self._tell("asks for a file's status")
        self._note_draw()
        drew = self._drew or ()
        if drew:
            self._look_for_traces()
        is_open = drew in self._not_entered and packed(drew) <= self._first_draw
        of_session = self._evidence.is_of_session
        is_final = not is_open and not self._is_disturbed
        why = self._why or trace
        return sample, Finding(drew, is_final, why, of_session, self._is_disturbed)

    def _made(self, dataset: Any, index: Any, split: Split | None) -> Any:
        if split is None:
            return dataset[index]
        return self._watching(split, ())(dataset, index)

    def _watching(self, split: Split, outer: Path) -> Callable[..., Any]:
        return split.watched(
            lambda step: self._at((*outer, step)),
            lambda step, callee: self._called(callee, (*outer, step)),
        )

    def _called(self, callee: Any, path: Path) -> Any:
        self._evidence.end()  # what we read of its source is not the sample's
        found = self._in_place_of(callee, path)
        self._evidence.begin()
        return found

    def _in_place_of(self, callee: Any, path: Path) -> Any:
        """Return what is called in place of a callee: the same, which tells of each of its parts."""
        if len(path) == MAX_LEVELS:
            return callee
        if length_of(callee):
            return watched(callee, functools.partial(self._at_transform, path))
        target = target_of(callee)
        if target is None:
            return callee
        if unpacked(self._first_draw)[: len(path)] != path:
            self._not_entered.add(path)
            return callee
        try:
            return target.bound(self._watching(split_of(target.function), path))
        except NotCuttable:
            return callee

    def _at_transform(self, outer: Path, part: int) -> None:
        if self._here[: len(outer)] == outer:  # else one inside another
            self._at((*outer, part))

    def _at(self, path: Path) -> None:
        """Look at the generators, and at what has changed, before a part of the sample."""
        self._evidence.end()
        self._note_draw()
        self._here = path
        self._compare(path)
        self._evidence.begin()

    def _note_draw(self) -> None:
        """Note whether the last part has drawn. Then what else was seen of it does not matter: it
        will not be remembered."""
        heard, self._heard = self._heard, []
        if self._drew is None and self._look() != self._before:
            self._drew = self._here
        if self._drew is None:
            self._why = self._why or next(iter(heard), "")
        else:
            self._trace = self._trace or next(
                (each for each in heard if each.startswith(_TRACES)), ""
            )

    def _compare(self, here: Path) -> None:
        """Compare fingerprints where the prefix ends, as far as is known: it may change nothing."""
        if self._state is None or self._fingerprint is None or self._drew is not None:
            return
        if self._known is not None and here == self._known.path:
            try:
                with self._opened.apart():
                    has_changed = self._fingerprint() != self._state
            except Exception as error:  # what could be watched before the sample cannot be now
                self._why = self._why or str(error)
            else:
                # A library that was imported meanwhile may have told the environment something.
                self._is_disturbed = has_changed and len(sys.modules) != self._num_modules
                if has_changed and not self._is_disturbed:
                    self._why = self._why or "changes something that the dataset reaches"

    def _look_for_traces(self) -> None:
        """Find out whether a sample that draws could be made twice, and nobody see it."""
        if self._whole is not None and self._fingerprint is not None:
            try:
                has_changed = self._fingerprint(leaves_scratch_out=True) != self._whole
            except Exception as error:
                self._why = self._why or str(error)
                return
            self._is_disturbed |= has_changed and len(sys.modules) != self._num_modules
            if has_changed and not self._is_disturbed:
                self._trace = self._trace or "changes something that the dataset reaches"
        if self._trace:
            self._why = self._why or f"cannot be made twice, to be compared: it {self._trace}"

    def _tell(self, why: str) -> None:
        self._heard.append(why)
