"""Rules for hedged requests: a late batch is asked of a second worker, the first answer counts.

Promise: one second worker a task; it is asked only if it can make what the first would have.
Pure: no thread, clock, socket or torch.
"""

from stoker.scheduler.events import Action, Ask, Late
from stoker.scheduler.history import Where
from stoker.scheduler.rules.placement import slots_for_free_tasks
from stoker.scheduler.state import StreamState
from stoker.scheduler.tasks.slot import Role, Slot


def late(s: StreamState, event: Late) -> list[Action]:
    """Start a chain's second worker, on another machine and from its point (tasks at home)."""
    chain = s.chain_of(event.slot)
    if not _may_hedge(s) or chain is None or chain.where is Where.PINNED:
        return []
    # What it covers is forgotten only where the state at iter() was seen not to move.
    is_portable = (
        chain.has_forgotten
        and not s.is_stateful
        and chain.point is not None
        and chain.point.fingerprint == s.fingerprint
    )
    cost_s = (chain.num_to_replay() + 1) * event.task_s + s.limits.second_start_s
    if not is_portable or chain.second_slot is not None or event.late_s < cost_s:
        return []
    s.num_hedged += 1
    role = Role.SECOND if chain.slot.role is Role.CHAIN else Role.CHAIN
    second = chain.second_slot = Slot(role, chain.number)
    return chain.replay_at(second, s.seeds, away=True)


def late_free(s: StreamState, event: Late) -> list[Action]:
    """Ask any other worker for a late free-standing task."""
    if not _may_hedge(s):
        return []
    chain = s.chain_of(event.slot)
    at_home = [] if chain is None else chain.owed  # since before tasks were free
    asked = [*s.free.on.get(event.slot, {}).values(), *at_home]
    task = next((task for task in asked if task.id == event.task_id), None)
    others = [other for other in slots_for_free_tasks(s) if other != event.slot]
    if task is None or not others:
        return []
    if len(s.free.owed(task.id)) + s.is_owed_at_home(task) > 1:
        return []
    s.num_hedged += 1
    s.free.late.add(event.slot)
    return [Ask(s.free.ask(task, others), task, free=True)]


def _may_hedge(s: StreamState) -> bool:
    return s.may_hedge and s.capacity > 0
