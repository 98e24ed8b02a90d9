"""Tasks that stand alone: who was asked for which, and what was made and has not left yet.

Promise: a task counts as owed until its first answer; further ones find nothing.
Pure: no thread, clock, socket or torch.
"""

from collections.abc import Iterable

from stoker.scheduler.tasks.plan import Task
from stoker.scheduler.tasks.slot import Slot


class FreeTasks:
    """on: by slot, then id, what its worker was asked for and has not answered; late: slots whose
    worker was late and has said nothing since."""

    def __init__(self, slots: Iterable[Slot] = ()) -> None:
        self.on: dict[Slot, dict[int, Task]] = {slot: {} for slot in slots}
        self.late: set[Slot] = set()
        self._held: dict[int, Task] = {}  # answered, not yet taken

    def ask(self, task: Task, slots: Iterable[Slot]) -> Slot:
        """Which of the slots is asked for it: the one that owes least; one that hangs would soon
        be that."""
        slot = min(slots, key=lambda s: (s in self.late, len(self.on[s])))
        self.on[slot][task.id] = task
        return slot

    def owed(self, task_id: int) -> list[Slot]:
        """The slots that owe a task; two, where a second one was asked."""
        return [slot for slot, tasks in self.on.items() if task_id in tasks]

    def answered(self, slot: Slot, task_id: int) -> bool:
        """Whether this is the first answer of a task that is owed."""
        self.late.discard(slot)
        task = self.let_go(slot, task_id)
        if task is not None:
            self._held[task_id] = task
        return task is not None

    def let_go(self, slot: Slot, task_id: int) -> Task | None:
        """A slot's task, which nobody owes any more; None where the slot did not owe it."""
        task = self.on.get(slot, {}).get(task_id)
        if task is not None:
            for tasks in self.on.values():
                tasks.pop(task_id, None)
        return task

    def made_at_home(self, slot: Slot, task_id: int) -> None:
        """A chain's own worker was first: nobody owes it here."""
        self.late.discard(slot)
        for tasks in self.on.values():
            tasks.pop(task_id, None)

    def taken(self, task_id: int) -> None:
        self._held.pop(task_id, None)

    def close(self, slot: Slot) -> list[Task]:
        """A slot is no more. What it owed, but what others owe too."""
        self.late.discard(slot)
        tasks = self.on.pop(slot, {})
        return [task for task in tasks.values() if not self.owed(task.id)]

    def restart(self, schedule_end: int) -> None:
        """The next epoch begins: tasks from there on are owed to nobody."""
        for slot, tasks in self.on.items():
            self.on[slot] = {i: task for i, task in tasks.items() if i < schedule_end}
        self._held.clear()

    def end(self) -> tuple[list[Task], list[Task]]:
        """Tasks are free no longer: those that were owed, and those that were made and not taken."""
        owed = {task.id: task for tasks in self.on.values() for task in tasks.values()}
        held = list(self._held.values())
        self.on, self._held = {}, {}
        return list(owed.values()), held
