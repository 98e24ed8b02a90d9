"""Tracks free-standing tasks: which worker was asked for which, and which batches have not left.

Promise: a task counts as owed until its first answer; later answers count for nothing.
Pure: no thread, clock, socket or torch.
"""

from collections.abc import Iterable

from stoker.scheduler.tasks.plan import Task
from stoker.scheduler.tasks.slot import Slot


class FreeTasks:
    """Tasks in flight. on: by slot, then id, what its worker was asked for and has not answered;
    late: slots whose worker was late and has said nothing since."""

    def __init__(self, slots: Iterable[Slot] = ()) -> None:
        self.on: dict[Slot, dict[int, Task]] = {slot: {} for slot in slots}
        self.late: set[Slot] = set()
        self._held: dict[int, Task] = {}  # answered, not yet taken

    def ask(self, task: Task, slots: Iterable[Slot]) -> Slot:
        """Choose the slot to ask: the one that owes least. Late ones come last, for one that hangs
        would soon owe least."""
        slot = min(slots, key=lambda s: (s in self.late, len(self.on[s])))
        self.on[slot][task.id] = task
        return slot

    def owed(self, task_id: int) -> list[Slot]:
        """Return the slots that owe a task; two, if a second one was asked."""
        return [slot for slot, tasks in self.on.items() if task_id in tasks]

    def answered(self, slot: Slot, task_id: int) -> bool:
        """Whether this is the first answer of a task that is owed."""
        self.late.discard(slot)
        task = self.let_go(slot, task_id)
        if task is not None:
            self._held[task_id] = task
        return task is not None

    def let_go(self, slot: Slot, task_id: int) -> Task | None:
        """Return a slot's task, which no slot owes any more; None if the slot did not owe it."""
        task = self.on.get(slot, {}).get(task_id)
        if task is not None:
            for tasks in self.on.values():
                tasks.pop(task_id, None)
        return task

    def made_at_home(self, slot: Slot, task_id: int) -> None:
        """Release a task that its chain's own worker made first."""
        self.late.discard(slot)
        for tasks in self.on.values():
            tasks.pop(task_id, None)

    def taken(self, task_id: int) -> None:
        self._held.pop(task_id, None)

    def close(self, slot: Slot) -> list[Task]:
        """Remove a slot. Returns the tasks that it alone owed."""
        self.late.discard(slot)
        tasks = self.on.pop(slot, {})
        return [task for task in tasks.values() if not self.owed(task.id)]

    def restart(self, schedule_end: int) -> None:
        """Begin the next epoch: tasks from `schedule_end` on are owed no longer."""
        for slot, tasks in self.on.items():
            self.on[slot] = {i: task for i, task in tasks.items() if i < schedule_end}
        self._held.clear()

    def end(self) -> tuple[list[Task], list[Task]]:
        """Stop, and return the tasks that were owed, and those that were made and not taken."""
        owed = {task.id: task for tasks in self.on.values() for task in tasks.values()}
        held = list(self._held.values())
        self.on, self._held = {}, {}
        return list(owed.values()), held
