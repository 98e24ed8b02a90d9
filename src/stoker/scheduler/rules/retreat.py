"""Sends tasks home for good, at the first task that does not stand alone (back from rung 5).

Promise: what was computed elsewhere counts only if the chain's own worker could not have computed
it otherwise; all else is computed again, at home, in the chain's order.
Pure: no thread, clock, socket or torch.
"""

from collections import deque

from stoker.scheduler.events import Action, Kill, NotIndependent
from stoker.scheduler.rules import chains, losses, placement
from stoker.scheduler.state import Phase, StreamState
from stoker.scheduler.tasks.plan import Task
from stoker.scheduler.tasks.slot import Slot


def not_independent(s: StreamState, event: NotIndependent) -> list[Action]:
    """Handle a task that turned out not to be free-standing."""
    task = s.free.let_go(event.slot, event.task_id)
    if task is None:  # it crossed with the bar, or with a restart that let the task go
        chain = s.chain_of(event.slot)
        return [] if chain is None else losses.clean(s, chain)
    if event.why == "drew":
        return bar(s, "it draws random numbers", [task], dirty=event.slot)
    return bar(s, "its state moves", [task], moved=(task.chain, event.task_id), dirty=event.slot)


def bar(
    s: StreamState,
    why: str,
    more: list[Task] | None = None,
    *,
    moved: tuple[int, int] | None = None,
    dirty: Slot | None = None,
) -> list[Action]:
    """Bar free-standing tasks for good. Those not yet answered, and `more`, run at home when due.

    moved: the chain whose state a task moves, and that task. dirty: a slot whose worker ran a task
    that was none of its own. Results made elsewhere for the chain's tasks after that one, or after
    one that is yet to run at home and may move the state too, did not see the change, and are made
    again. They have not left, for the earlier task itself has not; or that was made by a second
    worker as well, which saw that it moves nothing.
    """
    owed, held = s.free.end()
    owed += more or ()
    at_home = [task for chain in s.chains for task in chain.owed]
    first = {} if moved is None else dict([moved])
    for task in (*owed, *at_home):
        first[task.chain] = min(first.get(task.chain, task.id), task.id)
    stale = [task for task in held if task.id > first.get(task.chain, task.id)]
    for task in stale:
        s.reorder.drop(task.id)
    ids_at_home = {task.id for task in at_home}
    owed = [task for task in (*owed, *stale) if task.id not in ids_at_home]
    actions: list[Action] = [Kill(slot) for slot in sorted(s.extras)]
    s.phase, s.why_barred, s.extras = Phase.BARRED, why, set()
    if dirty is not None and (dirtied := s.chain_of(dirty)) is not None:
        actions += losses.clean(s, dirtied)
    for chain in s.chains:
        actions += placement.wake(s, chain)
    s.waiting = deque(sorted([*owed, *s.waiting], key=lambda task: task.id))
    return actions + placement.send_away(s) + chains.send_due(s)
