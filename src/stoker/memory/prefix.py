"""A sample's first part, up to a depth: runs it, goes on from it, and tells the state that it depends on.

Promise: as long as `state` stays what it is, the prefix is a function of the index; a change of an
attribute that it reads, of the dataset itself or of what else it calls into, is seen before the next
sample, one further inside at the next look.
Owner: the worker's main thread.
"""

import sys
from operator import is_
from typing import Any

from stoker.clock import now_s
from stoker.fingerprint.fingerprint import Apart
from stoker.memory.cut import RETURNED, Halves, Level, Link, NotCuttable, Reached, Split, cut_at
from stoker.memory.phases import Depth
from stoker.memory.watch import NO_STATE, Generators, Look, Reach, reach_of, state_of

_OF_OWN_MEMORY = {"resize", "resize_", "resize_as_", "set_", "base", "flags", "owndata"}
_SIZED = (list, dict, set)


class Prefix:
    """The first part of one dataset's samples. Raises NotCuttable, Unwatchable.

    state: of all that it depends on; told: that, and what tells the cut from others; apart: the
    generators that it reaches, and where arrays lie that it reaches; look: tells where these generators
    and the global ones stand.
    """

    def __init__(
        self,
        dataset: Any,
        depth: Depth,
        split: Split | str | None,
        look: Look,
        allowed_s: float,
        lasts: bool,
    ) -> None:
        """split: of the dataset's `__getitem__`, or why it cannot be split, None for whole samples;
        look: of the global generators; allowed_s: for one look at all that the prefix reaches;
        lasts: another run may ask for what is kept."""
        self._dataset, self._allowed_s, self._lasts = dataset, allowed_s, lasts
        self._depth = depth
        self._global_look = self.look = look
        self._halves: Halves | None = None
        self._link: Link | None = None
        if not depth.is_whole:
            if isinstance(split, str):
                raise NotCuttable(f"draws random numbers, and cannot be split: {split}")
            assert split is not None
            self._halves, self._link = cut_at(split.function, depth.path)
        self.state, self.told = NO_STATE, b""
        self.apart = Apart()
        self.num_moves = 0
        self._reach = Reach({}, [])
        self._surface: tuple[list[object], list[int]] = [], []
        self._looked_s = self._look_took_s = 0.0
        self._num_modules = 0
        self._expect()
        self.restate()

    @property
    def is_whole(self) -> bool:
        return self._halves is None

    @property
    def may_map(self) -> bool:
        """Whether the second half may be given values in memory that cannot grow."""
        behind = [level.halves.names_behind for level in self._levels()]
        return bool(behind) and not set().union(*behind) & _OF_OWN_MEMORY

    @property
    def is_met(self) -> bool:
        """Whether all is known that the prefix calls and of which only a part belongs to it."""
        return self._link is None or all(link.met is not None for link in self._link.chain())

    # -- samples -----------------------------------------------------------------------------------

    def run(self, index: Any) -> Reached:
        """Raises what the dataset raises."""
        if self._halves is None:
            return Reached(RETURNED, {"": self._dataset[index]})
        returned = self._halves.front(self._dataset, index)
        return self._halves.kept(returned, self._given(index), self._dataset)

    def go_on(self, index: Any, reached: Reached, is_hit: bool = False) -> Any:
        """Return the sample. Raises what the dataset raises; of a hit AnotherCallee."""
        if self._halves is None:
            return reached.values[""]
        if self._link is not None:
            self._link.begin(self._dataset, is_hit)
        return self._halves.rest(reached, self._given(index), self._dataset, is_hit)()

    def _given(self, index: Any) -> dict[str, Any]:
        assert self._halves is not None
        return dict(zip(self._halves.parameters, (self._dataset, index), strict=False))

    def meet(self, index: Any) -> Reached:
        """Run it to see what it calls; the state is known after the next `restate`."""
        self.num_moves += self.is_met
        self.forget()
        return self.run(index)

    def took_another(self) -> bool:
        """Whether the last run called another function or Compose than is part of the state."""
        if self._link is None or not any(link.has_changed for link in self._link.chain()):
            return False
        self.num_moves += 1
        self.forget()
        return True

    def forget(self) -> None:
        """Meet anew what is called: it is part of the state."""
        if self._link is not None:
            self._link.forget()
            self.state = NO_STATE

    def _expect(self) -> None:
        if self._link is not None and self._halves is not None:
            self._link.expect(self._halves, self._dataset)

    # -- state -------------------------------------------------------------------------------------

    @property
    def has_imported(self) -> bool:
        """Whether the worker has imported something since the last look: the state may be another."""
        return len(sys.modules) != self._num_modules

    def is_to_restate(self, look_frac: float) -> bool:
        """Whether it is time for a look. look_frac: of the worker's time, for such looks."""
        return self._has_moved() or look_frac * (now_s() - self._looked_s) > self._look_took_s

    def restate(self) -> None:
        """Compute the state anew. Raises Unwatchable."""
        self._num_modules = len(sys.modules)
        if self._link is not None and self.state != NO_STATE and self._has_moved():
            self.num_moves += 1
            self.forget()
            self._expect()
        if not self.is_met:
            return  # what is called is part of it
        began_s = now_s()
        apart = Apart()
        is_first = self.state == NO_STATE
        allowed_s = self._allowed_s if is_first else 4 * self._allowed_s  # noise ends nothing
        self._reach = reach_of(self._dataset, list(self._levels()), self._transforms()[0])
        state = state_of(self._reach.values, apart, allowed_s, self._lasts)
        self.num_moves += not is_first and self.state.now != state.now
        self.state, self.apart = state, apart
        codes = [level.halves.function.__code__ for level in self._levels()]
        cut = [(each.co_code, each.co_names, each.co_consts) for each in codes]
        self.told = state.now + repr((self._depth.path, cut)).encode()
        self.look = Generators(self._global_look, apart.generators).look
        self._surface = self._surface_now()
        self._looked_s = now_s()
        self._look_took_s = self._looked_s - began_s

    def _levels(self) -> list[Level]:
        if self._halves is None:
            return []
        inner = [] if self._link is None else self._link.levels()
        return [Level(self._halves, self._dataset), *inner]

    def _transforms(self) -> tuple[list[Any], list[Any]]:
        return ([], []) if self._link is None else self._link.transforms()

    def _surface_now(self) -> tuple[list[object], list[int]]:
        """Return what tells at a glance that something has changed: the attributes that the prefix
        reads, the first transforms, and how many items those have that have any."""
        values: list[Any] = self._reach.surface_now()
        lengths = [len(each) for each in values if type(each) in _SIZED]
        return values + self._transforms()[1], lengths

    def _has_moved(self) -> bool:
        values, lengths = self._surface
        now, lengths_now = self._surface_now()
        is_same = lengths == lengths_now and len(now) == len(values) and all(map(is_, now, values))
        return not (is_same and self.apart.shared.is_as_it_was)
