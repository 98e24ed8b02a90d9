"""Give batches back in sampler order.

Promise: batch k leaves only after 0..k-1 left or were skipped, and leaves once
(docs/guarantees.md, G3).
Bound: holds at most what is in flight. Pure: no thread, socket, clock or torch.
"""

from typing import Generic, TypeVar

T = TypeVar("T")


class Reorder(Generic[T]):
    """Holds early batches. `first`: the id that leaves first; in_order=False: any may leave."""

    __slots__ = ("_held", "_in_order", "_left", "next_id")

    def __init__(self, first: int, in_order: bool = True) -> None:
        self.next_id = first
        self._in_order = in_order
        self._held: dict[int, T] = {}
        self._left: set[int] = set()  # ids beyond next_id that left out of order

    def hold(self, task_id: int, batch: T) -> bool:
        """Keep a batch. False for one that was held or had left before: drop it."""
        if task_id < self.next_id or task_id in self._held or task_id in self._left:
            return False
        self._held[task_id] = batch
        return True

    def drop(self, task_id: int) -> None:
        """Forget a batch that is held; it will come again."""
        self._held.pop(task_id, None)

    def skip(self, task_id: int) -> None:
        """Skip a batch that will never come; those after it need not wait for it."""
        if task_id >= self.next_id:
            self._leave(task_id)

    def take(self) -> tuple[int, T] | None:
        """Return the batch that may leave now; None if it has not come."""
        if self.next_id in self._held:
            task_id = self.next_id
        elif self._held and not self._in_order:
            task_id = next(iter(self._held))
        else:
            return None
        batch = self._held.pop(task_id)
        self._leave(task_id)
        return task_id, batch

    def _leave(self, task_id: int) -> None:
        self._left.add(task_id)
        while self.next_id in self._left:
            self._left.discard(self.next_id)
            self.next_id += 1

    @property
    def num_held(self) -> int:
        return len(self._held)

    @property
    def num_left_early(self) -> int:
        return len(self._left)
