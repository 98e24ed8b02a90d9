"""Replaces workers that died: a replacement computes again what the lost one had computed.

Promise: a worker that died while it made a task is replaced until the task is to blame; a chain
goes on from its point where its past is forgotten, or gives up.
Pure: no thread, clock, socket or torch.
"""

from stoker.scheduler.events import Action, Ask, GiveUp, Kill, Lost, ReplayDiverged
from stoker.scheduler.history import Chain, Recovery
from stoker.scheduler.rules import placement
from stoker.scheduler.state import StreamState
from stoker.scheduler.tasks.plan import Task
from stoker.scheduler.tasks.slot import FINGERPRINT, Slot

# In place of an exit: the world changed, and a worker cannot be brought to where it was.
BEYOND_HELP = "its worker could not be brought back to where it was"


def lost(s: StreamState, event: Lost) -> list[Action]:
    """Replace a chain's worker. Without the fingerprint process histories merely stay whole."""
    count_loss(s, event)
    chain = s.chain_of(event.slot)
    if chain is None:
        return []
    return one_of_two_lost(chain, event.slot) or revive(s, chain, event)


def count_loss(s: StreamState, event: Lost) -> None:
    s.num_lost += event.slot != FINGERPRINT and not event.was_given_back


def one_of_two_lost(chain: Chain, slot: Slot) -> list[Action]:
    """Go on with the other worker, if the chain has two; no actions if it has one."""
    if chain.second_slot is None:
        return []
    return chain.settle(chain.second_slot if slot == chain.slot else chain.slot)


def revive(s: StreamState, chain: Chain, loss: Lost | None) -> list[Action]:
    """Start a chain's worker again, and replay what it made. loss: None if we ended it."""
    how = None if loss is None else loss.how
    if chain.recovery is Recovery.RELOADING:  # to load it may be what killed it
        chain.distrust()
    if loss is not None and how is not None and _is_hopeless(s, chain, loss):
        chain.give_up(how)
        return [give_up(task, chain) for task in chain.owed]
    if how is not None and chain.is_away:
        chain.died_away(s.limits.max_deaths_away)
    chain.num_machines_lost += how is None and chain.is_away
    has_too_few_here = s.num_chains_here < placement.num_to_keep(s)
    if chain.num_machines_lost >= s.limits.max_deaths or has_too_few_here:
        chain.come_home()
    s.num_replayed += chain.num_to_replay()
    return chain.replay(s.seeds)


def _is_hopeless(s: StreamState, chain: Chain, loss: Lost) -> bool:
    """Count a death against the task being made, or else the chain; whether it is too many."""
    task = chain.oldest_owed
    if task is not None and loss.begun in (None, task.id):
        return blame(s, task)
    chain.num_in_vain += 1
    most = s.limits.max_ours_in_vain if loss.is_ours else s.limits.max_in_vain
    return chain.num_in_vain >= most


def blame(s: StreamState, task: Task) -> bool:
    """Count one more death against the task that was at work; whether it is one too many."""
    task.num_deaths += 1
    return task.num_deaths >= s.limits.max_deaths


def clean(s: StreamState, chain: Chain) -> list[Action]:
    """Replace a chain's own worker, whose state is not the chain's any more."""
    owed = s.free.on.pop(chain.slot, None)
    actions = [*chain.settle(chain.slot), Kill(chain.slot), *revive(s, chain, None)]
    if owed is not None:
        s.free.on[chain.slot] = owed
        actions += [Ask(chain.slot, task, free=True) for task in owed.values()]
    return actions


def replay_diverged(s: StreamState, event: ReplayDiverged) -> list[Action]:
    chain = s.chain_of(event.slot)
    assert chain is not None
    chain.distrust()
    return clean(s, chain)


def has_resumed(s: StreamState, chain: Chain, slot: Slot, resumed: bool) -> list[Action]:
    """Handle a chain's worker that did not resume from the point, though the past is forgotten."""
    if resumed or not chain.has_forgotten:
        return []
    if slot == chain.second_slot:
        return chain.settle(chain.slot)
    if chain.is_away:  # that machine is unlike this one after all
        chain.come_home()
        return clean(s, chain)
    chain.give_up(BEYOND_HELP)
    return [Kill(slot), *(give_up(task, chain) for task in chain.owed)]


def give_up(task: Task, chain: Chain) -> GiveUp:
    return GiveUp(task, chain.how_lost, chain.num_in_vain)
