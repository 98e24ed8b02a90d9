"""Shared memory in which each worker notes the task that it is making, read when it has died.

Promise: one word a slot, written by that slot's worker and cleared by the trainer before the next
one starts; nobody waits for it, and to note a task costs one store.
"""

from collections.abc import Callable
from typing import Any

from stoker.wire.slabs import Arena

NOTHING = -1  # no task has begun: the worker is idle, starts, or repeats earlier tasks
_WORD_NBYTES = 8


class Marks:
    """One mark a slot. can_travel: may be given to processes that are started by spawn, while they
    are, or to others as its file descriptor; fd: one that was."""

    def __init__(self, num_slots: int, can_travel: bool = False, fd: int | None = None) -> None:
        self._take(Arena(_WORD_NBYTES * num_slots, can_travel, fd))

    def _take(self, arena: Arena) -> None:
        self._arena = arena
        self._words = arena.view(0, arena.nbytes).cast("q")  # a new page is zero: counted from one

    def __reduce__(self) -> tuple[Any, ...]:
        return _marks_in, (self._arena,)

    @property
    def fd(self) -> int:
        """Of marks that can travel."""
        return self._arena.fd

    def writer(self, slot: int) -> Callable[[int], None]:
        """Returns the function by which the slot's worker notes its task's id, or NOTHING."""
        words = self._words

        def write(task_id: int) -> None:
            words[slot] = task_id + 1

        return write

    def begun(self, slot: int) -> int:
        """Id of the task that the slot's latest worker was making, or NOTHING."""
        return self._words[slot] - 1

    def clear(self, slot: int) -> None:
        """Forget what a worker that is gone has noted, before another is started in its slot."""
        self._words[slot] = 0


def _marks_in(arena: Arena) -> Marks:
    marks = Marks.__new__(Marks)
    marks._take(arena)
    return marks
