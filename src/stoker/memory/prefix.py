"""A sample's first part, up to a depth: runs it, goes on from it, and tells the state that it depends on.

Promise: as long as `state` stays what it is, the prefix is a function of the index; a change of an
attribute of the dataset itself is seen before the next sample, one further inside at the next look.
Owner: the worker's main thread.
"""

import pickle
from collections.abc import Sequence
from operator import is_
from typing import Any

from stoker.clock import now_s
from stoker.fingerprint import data
from stoker.fingerprint.fingerprint import Apart
from stoker.memory.cut import RETURNED, Halves, Head, NotCuttable, Reached, Split
from stoker.memory.phases import NOWHERE, Depth
from stoker.memory.watch import UNKNOWN, Look, reach_of, state_of

_LOOK_FRAC = 0.01  # of a worker's time, for looks at all that the prefix reaches
_NUM_SURFACE = 64  # attributes of the dataset that are looked at before each sample
_OF_OWN_MEMORY = {"resize", "resize_", "resize_as_", "set_", "base", "flags", "owndata"}
_SIZED = (list, dict, set)


class Prefix:
    """The first part of one dataset's samples. Raises NotCuttable, Unwatchable.

    state: of all that it depends on; apart: the generators that it reaches, and where arrays lie that it reaches;
    look: tells where these generators and the global ones stand.
    """

    def __init__(
        self, dataset: Any, depth: Depth, split: Split | str, look: Look, allowed_s: float
    ) -> None:
        """split: of the dataset's `__getitem__`, or why it cannot be split; look: of the global
        generators; allowed_s: for one look at all that the prefix reaches."""
        self._dataset, self._allowed_s = dataset, allowed_s
        self._global_look = self.look = look
        self._halves: Halves | None = None
        self._head: Head | None = None
        if not depth.is_whole:
            if isinstance(split, str):
                raise NotCuttable(f"draws random numbers, and cannot be split: {split}")
            if depth.part != NOWHERE:
                self._head = Head(depth.part)
            parts = self._head.parts if self._head is not None else None
            self._halves = split.at(depth.step, parts)
        self.state = UNKNOWN
        self.apart = Apart()
        self.num_moves = 0
        self._surface: tuple[list[object], list[int]] = [], []
        self._next_look_s = 0.0
        self.restate()

    @property
    def is_whole(self) -> bool:
        return self._halves is None

    @property
    def may_map(self) -> bool:
        """Whether the second half may be given values in memory that cannot grow."""
        return self._halves is not None and not self._halves.names_behind & _OF_OWN_MEMORY

    @property
    def is_met(self) -> bool:
        """Whether the Compose has been called whose first transforms belong to the prefix."""
        return self._head is None or self._head.callee is not None

    # -- samples -----------------------------------------------------------------------------------

    def run(self, index: Any) -> Reached:
        """Raises what the dataset raises."""
        if self._halves is None:
            return Reached(RETURNED, {"": self._dataset[index]})
        return self._halves.prefix(self._dataset, index)

    def go_on(self, index: Any, reached: Reached, is_hit: bool = False) -> Any:
        """Return the sample. Raises what the dataset raises; of a hit AnotherCompose."""
        if self._halves is None:
            return reached.values[""]
        if self._head is not None:
            self._head.is_hit = is_hit
        return self._halves.go_on(reached.way, self._dataset, index, reached.values)

    def meet(self, index: Any) -> Reached:
        """Run it to see which Compose it calls; the state is known after the next `restate`."""
        self._forget_head()
        return self.run(index)

    def took_another(self) -> bool:
        """Whether the last run called another Compose than the one that is part of the state."""
        if self._head is None or not self._head.has_changed:
            return False
        self._forget_head()
        return True

    def _forget_head(self) -> None:
        """Meet the Compose anew: it is part of the state."""
        if self._head is not None:
            self._head.forget()
            self.state = UNKNOWN

    # -- state -------------------------------------------------------------------------------------

    def is_to_restate(self) -> bool:
        return self._has_moved() or now_s() > self._next_look_s

    def restate(self) -> None:
        """Compute the state anew. Raises Unwatchable."""
        if self._head is not None and self.state != UNKNOWN and self._has_moved():
            self.num_moves += 1
            self._forget_head()
        if not self.is_met:
            return  # the Compose is part of it
        began_s = now_s()
        apart = Apart()
        is_first = self.state == UNKNOWN
        allowed_s = self._allowed_s if is_first else 4 * self._allowed_s  # noise ends nothing
        transforms = self._head.transforms if self._head is not None else []
        state = state_of(reach_of(self._dataset, self._halves, transforms), apart, allowed_s)
        self.num_moves += self.state not in (UNKNOWN, state)
        self.state, self.apart = state, apart
        self.look = with_generators(self._global_look, apart.generators)
        self._surface = self._surface_now()
        self._next_look_s = now_s() + (now_s() - began_s) / _LOOK_FRAC

    def _surface_now(self) -> tuple[list[object], list[int]]:
        """Return what tells at a glance that the dataset has changed: its attributes themselves, the
        first transforms, and how many items those have that have any."""
        values = list(getattr(self._dataset, "__dict__", {}).values())[:_NUM_SURFACE]
        lengths = [len(each) for each in values if type(each) in _SIZED]
        return (values if self._head is None else values + self._head.now()), lengths

    def _has_moved(self) -> bool:
        values, lengths = self._surface
        now, lengths_now = self._surface_now()
        return lengths != lengths_now or len(now) != len(values) or not all(map(is_, now, values))


def with_generators(first: Look, generators: Sequence[Any]) -> Look:
    """Return a look at the global generators and at others, of these at their whole states: pickled,
    for what an array prints is the script's to set."""
    if not generators:
        return first
    kept = tuple(generators)
    return lambda: (first(), pickle.dumps(list(map(data.state_of, kept))))
