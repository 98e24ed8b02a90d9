"""Rules for free-standing tasks: any worker makes any task, so more than V can work (rung 5).

It is entered only when every chain has shown the fingerprint of iter() and drawn nothing, and
further workers, which were started after it, show that fingerprint too. It is left for good at the
first task that says otherwise; what was made elsewhere then counts only if the chain's own worker
could not have made it otherwise.
Promise: a result is taken once. Pure: no thread, clock, socket or torch.
"""

from collections.abc import Iterable

from stoker.scheduler.events import (
    Action,
    Arrived,
    Ask,
    Drawn,
    FreeArrived,
    GiveUp,
    Kill,
    Lost,
    Offered,
    PointTaken,
    Start,
    WorkerReady,
)
from stoker.scheduler.free import FreeTasks
from stoker.scheduler.history import Where
from stoker.scheduler.rules import chains, losses, placement, retreat
from stoker.scheduler.state import Phase, StreamState
from stoker.scheduler.tasks.plan import Task
from stoker.scheduler.tasks.slot import FINGERPRINT, Role, Slot

# -- on the way there ------------------------------------------------------------------------------


def point_taken_at_home(s: StreamState, event: PointTaken) -> list[Action]:
    """Start further workers if a chain's point shows that its tasks may be free-standing."""
    actions = chains.point_taken(s, event)
    point = event.point
    if actions or not s.may_be_free:
        return actions
    if point.drew:
        return retreat.bar(s, "it draws random numbers")
    if point.watch_s + s.limits.free_cost_s > s.limits.free_cost_frac * point.task_s:
        return []  # looking after each task whether it left a trace would cost too much
    s.phase = Phase.ASKED
    s.extras = set(s.local_extras)
    actions = [act for chain in s.chains for act in chain.settle(chain.slot)]
    actions += [Start(slot, must_report=True) for slot in sorted(s.extras)]
    return actions + placement.hire(s)


def point_taken(s: StreamState, event: PointTaken) -> list[Action]:
    point = event.point
    s.chains[event.chain].keep_point(point, s.fingerprint)
    if point.drew:
        return retreat.bar(s, "it draws random numbers")
    if s.fingerprint not in (None, point.fingerprint):
        return retreat.bar(s, "its state moves", moved=(event.chain, point.task_id))
    return _try_free(s)


def worker_ready(s: StreamState, event: WorkerReady) -> list[Action]:
    """Handle a worker that has begun: a chain's, a further one, or the fingerprint process."""
    slot, fingerprint = event.slot, event.fingerprint
    chain = s.chain_of(slot)
    if chain is not None:
        actions = losses.has_resumed(s, chain, slot, event.resumed)
        if chain.is_hopeless and actions:
            actions += _ask_again(s, placement.close_free(s, slot))
        return actions
    if slot == FINGERPRINT:
        return [Kill(slot), *(_learn(s, fingerprint) if fingerprint else [])]
    if s.phase not in (Phase.ASKED, Phase.FREE):
        return []  # it is being killed
    if slot.role is Role.REMOTE and fingerprint != s.fingerprint:
        return _dismiss(s, [slot])
    return _learn(s, fingerprint) if fingerprint else retreat.bar(s, "it cannot be watched")


def _learn(s: StreamState, fingerprint: bytes) -> list[Action]:
    """Keep the job's fingerprint at iter(), as one more process shows it; bar if it differs."""
    if s.fingerprint not in (None, fingerprint):
        return retreat.bar(s, "it looks different in every process")
    s.fingerprint = fingerprint
    for chain in s.chains:
        chain.forget_covered(fingerprint)
    return _try_free(s)


def _try_free(s: StreamState) -> list[Action]:
    """Enter FREE once every chain was seen unmoved after its last unwatched task."""
    if s.phase is not Phase.ASKED or s.fingerprint is None:
        return []
    if any(chain.second_slot is not None for chain in s.chains):
        return []  # which of the two goes on is not known yet
    for number, chain in enumerate(s.chains):
        if chain.is_hopeless or chain.point is None:
            return []
        if chain.point.task_id < chain.last_unwatched_id:
            return []
        if chain.point.fingerprint != s.fingerprint:
            return retreat.bar(s, "its state moves", moved=(number, chain.point.task_id))
    s.phase = Phase.FREE
    s.free = FreeTasks([*(c.slot for c in s.chains), *sorted(s.extras)])
    return _dismiss(s, s.crowd) + placement.hire(s)


# -- there -----------------------------------------------------------------------------------------


def drawn(s: StreamState, event: Drawn) -> list[Action]:
    return [_ask(s, chains.next_task(s, event))]


def _ask(s: StreamState, task: Task) -> Ask:
    slots = placement.slots_for_free_tasks(s)
    if task.num_deaths >= s.limits.max_deaths_away:
        slots = [slot for slot in s.free.on if s.is_here(slot)] or slots
    return Ask(s.free.ask(task, slots), task, free=True)


def _ask_again(s: StreamState, orphans: list[Task]) -> list[Action]:
    """Ask others for the free-standing tasks of workers that are gone."""
    if s.phase is Phase.FREE and not s.free.on:
        return retreat.bar(s, "all its workers died", orphans)
    return [_ask(s, task) for task in orphans]


def _dismiss(s: StreamState, slots: Iterable[Slot]) -> list[Action]:
    actions, orphans = placement.dismiss(s, slots)
    return actions + _ask_again(s, orphans)


def arrived(s: StreamState, event: FreeArrived) -> list[Action]:
    if not s.free.answered(event.slot, event.task_id):
        return []  # another was first, or a restart let it go
    chain = s.chain_of(event.slot)
    if chain is not None:
        chain.num_in_vain = chain.num_deaths_away = 0
    elif event.slot.role is Role.REMOTE:
        s.num_deaths_away = 0
    if event.task_id >= s.first_id:
        s.reorder.hold(event.task_id, event.batch)
    return []


def arrived_at_home(s: StreamState, event: Arrived) -> list[Action]:
    """Take a batch owed from before tasks were free; end its worker if it crowds a host."""
    actions = chains.arrived(s, event)
    chain = s.chain_of(event.slot)
    if event.slot in s.crowd and chain is not None and not chain.num_owed:
        actions += _dismiss(s, [event.slot]) + placement.hire(s)
    return actions


def crossed(s: StreamState, event: FreeArrived) -> list[Action]:
    """Ignore a free task's batch that came after the bar: it is made at home, or was."""
    return []


def offered(s: StreamState, event: Offered) -> list[Action]:
    """Adapt to a changed capacity of other machines."""
    if not placement.take_offer(s, event):
        return []
    actions = [] if s.capacity else [a for c in s.chains for a in placement.wake(s, c)]
    return actions + _dismiss(s, s.crowd) + placement.hire(s)


def lost(s: StreamState, event: Lost) -> list[Action]:
    """Handle the loss of a worker of any kind."""
    losses.count_loss(s, event)
    slot, chain = event.slot, s.chain_of(event.slot)
    if slot == FINGERPRINT:
        return []  # then histories stay whole
    if chain is not None and (actions := losses.one_of_two_lost(chain, slot)):
        return actions
    actions, orphans = _blame(s, event, placement.close_free(s, slot))
    if chain is not None:
        return actions + _chain_lost(s, event) + _ask_again(s, orphans)
    s.extras.discard(slot)
    if slot.role is Role.REMOTE:
        s.num_deaths_away += event.how is not None
        actions += placement.hire(s)
    elif not s.extras:
        return actions + retreat.bar(s, "its further workers died", orphans)
    return actions + _ask_again(s, orphans)


def _blame(s: StreamState, event: Lost, owed: list[Task]) -> tuple[list[Action], list[Task]]:
    """Split what a lost worker owed into what is given up and what others make."""
    guilty = owed[:1] if event.begun is None else [t for t in owed if t.id == event.begun]
    how = event.how
    if how is None:  # its machine was lost, or the way there
        return [], owed
    hopeless = [task for task in guilty if losses.blame(s, task)]
    given_up: list[Action] = [GiveUp(task, how) for task in hopeless]
    return given_up, [task for task in owed if task not in hopeless]


def _chain_lost(s: StreamState, event: Lost) -> list[Action]:
    chain = s.chain_of(event.slot)
    assert chain is not None
    if event.how is None and placement.may_sleep(s, chain):
        chain.where = Where.ASLEEP
        return placement.hire(s)
    actions = losses.revive(s, chain, event)
    if s.phase is Phase.FREE and not chain.is_hopeless:
        s.free.on[chain.slot] = {}
    return actions
