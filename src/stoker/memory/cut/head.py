"""Splits a Compose that a function calls: its first transforms belong to the prefix.

Promise: where something else is called in its place, or another Compose than the one whose first
transforms made a value, that is noticed before anything of the second half has run.
"""

from typing import Any

from stoker.memory.cut import compose
from stoker.memory.cut.halves import Parts


class AnotherCompose(BaseException):
    """The second half is about to call another Compose than the one whose first transforms made
    what it was given. Not an Exception: no handler of the script's is to see it."""


class Head:
    """The Compose that a place's prefix calls last, and the first transforms of it.

    Where something else is called in its place, that is called by the prefix whole.
    """

    def __init__(self, num: int) -> None:
        self._num = num
        self.callee: Any = None
        self.transforms: list[Any] = []
        self.has_changed = False  # another Compose was called than is in the state
        self.is_hit = False  # the second half runs on a value of the shelf
        self.parts = Parts(self._front, self._back)

    def forget(self) -> None:
        self.callee, self.transforms = None, []
        self.has_changed = False

    def now(self) -> list[Any]:
        """Return the first transforms as they are now."""
        if not self._is_known(self.callee):
            return []
        return compose.transforms_of(self.callee)[: self._num]

    def _is_known(self, callee: Any) -> bool:
        return compose.length_of(callee) > self._num

    def _front(self, callee: Any) -> Any:
        if not self._is_known(callee):
            return callee
        if self.callee is None:
            self.callee, self.transforms = callee, compose.transforms_of(callee)[: self._num]
        elif callee is not self.callee:
            self.has_changed = True
        return compose.part(callee, 0, self._num)

    def _back(self, callee: Any) -> Any:
        if not self._is_known(callee):
            return _same
        if self.is_hit and callee is not self.callee:
            raise AnotherCompose
        return compose.part(callee, self._num, None)


def _same(value: Any) -> Any:
    return value
