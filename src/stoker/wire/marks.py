"""Shared memory in which each worker notes the task that it is making, read if the worker dies.

Promise: one word a slot, written by that slot's worker and cleared by the trainer before the next
one starts; nothing waits for it, and to note a task costs one store.
"""

from collections.abc import Callable

from stoker.wire.arena import Arena

NOTHING = -1  # no task has begun: the worker is idle, starts, or repeats earlier tasks
LOST = -2  # in place of a mark, of a worker that is there no more
_WORD_NBYTES = 8


class Marks:
    """One word of shared memory per slot. can_travel: may be given to processes that are started by
    spawn, while they are, or to others as its file descriptor; fd: that of marks made elsewhere."""

    def __init__(self, num_slots: int, can_travel: bool = False, fd: int | None = None) -> None:
        self._take(Arena(_WORD_NBYTES * num_slots, can_travel, fd))

    def _take(self, arena: Arena) -> None:
        self._arena = arena
        self._words = arena.view(0, arena.nbytes).cast("q")  # a new page is zero: counted from one

    def __reduce__(self) -> tuple[object, ...]:
        return _marks_in, (self._arena,)

    @property
    def fd(self) -> int:
        """The file descriptor of marks that can travel."""
        return self._arena.fd

    def writer(self, slot: int) -> Callable[[int], None]:
        """Return the function by which the slot's worker notes its task's id, or NOTHING."""
        words = self._words

        def write(task_id: int) -> None:
            words[slot] = task_id + 1

        return write

    def begun(self, slot: int) -> int:
        """Return the id of the task that the slot's latest worker was making, or NOTHING."""
        return self._words[slot] - 1

    def clear(self, slot: int) -> None:
        """Erase what a dead worker has noted, before another is started in its slot."""
        self._words[slot] = 0


def _marks_in(arena: Arena) -> Marks:
    marks = Marks.__new__(Marks)
    marks._take(arena)
    return marks
