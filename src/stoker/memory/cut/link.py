"""Cuts on inside what a step calls: of a Compose its first transforms belong to the prefix, of a
function or method its first steps, and so on inward.

Promise: where something else is called in its place, or another than the one whose first part made a
value, that is noticed before anything of the second half has run.
"""

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from stoker.memory.cut import compose
from stoker.memory.cut.callee import UNKNOWN, Target, resolved, target_of
from stoker.memory.cut.halves import RETURNED, Halves, NotCuttable, Reached, Split

_PARTED = 0  # the way of a Compose that has stopped behind its first transforms


class AnotherCallee(BaseException):
    """The second half is about to call another function or Compose than the one whose first part
    made what it was given. Not an Exception: no handler of the script's is to see it."""


class Level(NamedTuple):
    """A function that is cut, and what it is bound to; UNKNOWN if to nothing."""

    halves: Halves
    owner: Any


def split_of(function: Any) -> Split:
    """Return a function to be split. Raises NotCuttable."""
    return _split_of(function, getattr(function, "__code__", None))


@functools.lru_cache(maxsize=64)
def _split_of(function: Any, code: Any) -> Split:
    return Split(function)


def cut_at(function: Any, path: Sequence[int]) -> tuple[Halves, "Link | None"]:
    """Cut a function before a step, and inside that at the parts that follow. Raises NotCuttable."""
    link = Link(path[1:]) if len(path) > 1 else None
    return split_of(function).at(path[0], link), link


class _Composed:
    """A Compose that is cut."""

    link = None

    def __init__(self, callee: Any, num: int) -> None:
        self.callee, self._num = callee, num
        self.transforms = self.now()

    def now(self) -> list[Any]:
        """Return the first transforms as they are now."""
        return compose.transforms_of(self.callee)[: self._num]

    def is_same(self, callee: Any) -> bool:
        return callee is self.callee and compose.length_of(callee) > self._num

    def front(self) -> Any:
        return compose.part(self.callee, 0, self._num)

    def kept(self, returned: Any, dataset: Any) -> Reached:
        return Reached(_PARTED, {"": returned})

    def back(self, reached: Reached, dataset: Any, is_hit: bool) -> Callable[[], Any]:
        return functools.partial(compose.part(self.callee, self._num, None), reached.values[""])


class _Called:
    """A function that is cut, or a method."""

    def __init__(self, target: Target, path: Sequence[int]) -> None:
        self.target = target
        self.halves, self.link = cut_at(target.function, path)
        self._given = {}
        if target.owner is not UNKNOWN and self.halves.first is not None:
            self._given = {self.halves.first: target.owner}
        elif target.owner is not UNKNOWN:
            raise NotCuttable("it is bound, and has no name for that")

    def is_same(self, callee: Any) -> bool:
        return self.target.is_same(target_of(callee))

    def front(self) -> Any:
        return self.target.bound(self.halves.front)

    def kept(self, returned: Any, dataset: Any) -> Reached:
        return self.halves.kept(returned, self._given, dataset)

    def back(self, reached: Reached, dataset: Any, is_hit: bool) -> Callable[[], Any]:
        if self.link is not None:
            self.link.begin(dataset, is_hit)
        return self.halves.rest(reached, self._given, dataset, is_hit)


def _met(callee: Any, path: Sequence[int]) -> _Composed | _Called | None:
    """Return a callee to be cut; None if it cannot be, at this part."""
    if compose.length_of(callee):
        is_there = len(path) == 1 and compose.length_of(callee) > path[0]
        return _Composed(callee, path[0]) if is_there else None
    target = target_of(callee)
    try:
        return None if target is None else _Called(target, path)
    except NotCuttable:
        return None


class Link:
    """What a step calls, cut in two. path: of the part before which it is cut.

    What is called in place of what was met first is called by the prefix whole.
    """

    def __init__(self, path: Sequence[int]) -> None:
        self._path = path
        self.met: _Composed | _Called | None = None
        self.has_changed = False  # another was called than is in the state
        self._parted: _Composed | _Called | None = None  # what the last first half was of
        self._dataset: Any = None
        self._is_hit = False

    def meet(self, callee: Any) -> None:
        self.met = _met(callee, self._path)

    def forget(self) -> None:
        self.met, self.has_changed = None, False

    def expect(self, halves: Halves, owner: Any) -> None:
        """Meet what the step will call, if that can be told beforehand, and so on inward."""
        assert halves.callee is not None
        local = halves.local
        callee = resolved(halves.callee, halves.function, local, halves.first, owner)
        if callee is not UNKNOWN:
            self.meet(callee)
        if isinstance(self.met, _Called) and self.met.link is not None:
            self.met.link.expect(self.met.halves, self.met.target.owner)

    def chain(self) -> Iterator["Link"]:
        """Iterate this link and those inside what it has met."""
        yield self
        if self.met is not None and self.met.link is not None:
            yield from self.met.link.chain()

    def levels(self) -> Iterator[Level]:
        """Iterate the functions that are cut."""
        for link in self.chain():
            if isinstance(link.met, _Called):
                yield Level(link.met.halves, link.met.target.owner)

    def transforms(self) -> tuple[list[Any], list[Any]]:
        """Return the first transforms of a Compose, as they were met and as they are now."""
        met = [link.met for link in self.chain() if isinstance(link.met, _Composed)]
        was, now = [each.transforms for each in met], [each.now() for each in met]
        return [one for each in was for one in each], [one for each in now for one in each]

    def begin(self, dataset: Any, is_hit: bool) -> None:
        """Tell of the second half that is to run. is_hit: on a value of the shelf."""
        self._dataset, self._is_hit = dataset, is_hit

    # -- called by the halves, in the script's frames ----------------------------------------------

    def front(self, callee: Any) -> Any:
        self._parted = None
        try:
            if self.met is None:
                self.meet(callee)
            elif not self.met.is_same(callee):
                self.has_changed = True
            if self.met is None or self.has_changed:
                return callee
            front = self.met.front()
        except Exception:  # ours; nothing has been called yet
            self.met = None
            return callee
        self._parted = self.met
        return front

    def kept(self, returned: Any, dataset: Any) -> Reached:
        if self._parted is None:
            return Reached(RETURNED, {"": returned})
        return self._parted.kept(returned, dataset)

    def back(self, callee: Any, reached: Reached) -> Callable[[], Any]:
        parted = self._parted
        if self._is_hit:
            parted = self.met
            if parted is None or not parted.is_same(callee):
                raise AnotherCallee
        if reached.way == RETURNED or parted is None:
            return functools.partial(_same, reached.values[""])
        return parted.back(reached, self._dataset, self._is_hit)


def _same(value: Any) -> Any:
    return value
