"""Rules for placement: which machine a chain's worker is on, how many workers other machines get.

Promise: this machine keeps its share of the chains; other machines get one worker for each that
their capacity allows; a chain moves at once if it loses nothing by it, else at its next Point that
is good on any machine. Pure: no thread, clock, socket or torch.
"""

import itertools
from collections.abc import Iterable

from stoker.scheduler.events import Action, Kill, Offered, Start
from stoker.scheduler.history import Chain, Where
from stoker.scheduler.state import Phase, StreamState
from stoker.scheduler.tasks.plan import Task
from stoker.scheduler.tasks.slot import Role, Slot


def offered(s: StreamState, event: Offered) -> list[Action]:
    """Adapt to a changed capacity of other machines while every task runs at home."""
    if not take_offer(s, event):
        return []
    for chain in filter(None, map(s.chain_of, event.crowd)):
        plan_to_move(s, chain)
    return send_away(s)


def take_offer(s: StreamState, event: Offered) -> bool:
    """Take an offer; whether other machines can be used: the job's fingerprint is theirs too."""
    s.capacity, s.num_local, s.crowd = event.capacity, event.num_local, event.crowd
    s.fingerprint = s.fingerprint or event.fingerprint
    if s.fingerprint != event.fingerprint:  # seen to differ between forks of one process
        s.capacity = 0
        return False
    for chain in s.chains:
        chain.forget_covered(s.fingerprint)
    return True


def plan_to_move(s: StreamState, chain: Chain) -> None:
    if s.is_iterable:  # it has no point that is good on any machine
        chain.stay_put()
    else:
        chain.plan_to_move()


def send_away(s: StreamState) -> list[Action]:
    """Have chains move that are beyond this machine's share."""
    here = [chain for chain in s.chains if not chain.is_away and not chain.is_hopeless]
    num_to_go = len(here) - num_to_keep(s)
    here = [chain for chain in here if chain.where is not Where.PINNED]
    actions: list[Action] = []
    for chain in here[::-1][: max(num_to_go, 0)]:
        if not chain.num_to_replay() and not chain.is_over:
            actions += move(s, chain)
        else:
            plan_to_move(s, chain)
    return actions


def num_to_keep(s: StreamState) -> int:
    """Return the number of chains for this machine: its share of all that may work at once."""
    if not s.capacity or s.num_local is None:
        return s.num_chains
    return min(s.num_local, round(s.num_chains * s.num_local / (s.num_local + s.capacity)))


def move(s: StreamState, chain: Chain) -> list[Action]:
    """Move a chain to another machine, if there still is one."""
    chain.stay_put()
    if not s.capacity:
        return []
    chain.where = Where.REMOTE
    return [*chain.settle(chain.slot), Kill(chain.slot), *chain.replay(s.seeds)]


# -- while tasks stand alone, or may soon ----------------------------------------------------------


def hire(s: StreamState) -> list[Action]:
    """Start workers up to the capacity, chains' own among them: more would but share CPUs."""
    if s.phase not in (Phase.ASKED, Phase.FREE):
        return []
    if s.num_deaths_away >= s.limits.max_deaths:  # with no answer between them: they all would
        return []
    num_away = sum(slot.role is Role.REMOTE for slot in s.extras)
    num_away += sum(chain.is_away and not chain.is_asleep for chain in s.chains)
    slots = (Slot(Role.REMOTE, index) for index in itertools.count())
    wanted = (slot for slot in slots if slot not in s.extras)
    actions: list[Action] = []
    for slot in itertools.islice(wanted, max(s.capacity - num_away, 0)):
        s.extras.add(slot)
        actions.append(Start(slot, must_report=True, away=True))
        if s.phase is Phase.FREE:
            s.free.on[slot] = {}
    return actions


def dismiss(s: StreamState, slots: Iterable[Slot]) -> tuple[list[Action], list[Task]]:
    """End workers that free-standing tasks can do without. Returns also the tasks that no slot owes
    any more."""
    actions: list[Action] = []
    orphans: list[Task] = []
    for slot in slots:
        chain = s.chain_of(slot)
        if slot in s.extras:
            s.extras.discard(slot)
        elif chain is not None and slot == chain.slot and may_sleep(s, chain):
            chain.where = Where.ASLEEP
        else:
            continue
        actions.append(Kill(slot))
        orphans += close_free(s, slot)
    return actions, orphans


def close_free(s: StreamState, slot: Slot) -> list[Task]:
    """Remove a slot. Returns the free-standing tasks that no other slot owes."""
    return [task for task in s.free.close(slot) if not s.is_owed_at_home(task)]


def may_sleep(s: StreamState, chain: Chain) -> bool:
    """Whether a chain's tasks are made without a worker of its own, and better so."""
    is_needed = chain.num_owed or not any(slot != chain.slot for slot in s.free.on)
    has_place = s.capacity > 0 and s.num_chains_here >= num_to_keep(s)
    return s.phase is Phase.FREE and chain.is_away and has_place and not is_needed


def wake(s: StreamState, chain: Chain) -> list[Action]:
    """Give a chain that is asleep a worker of its own again."""
    if not chain.is_asleep:
        return []
    chain.where = Where.REMOTE if s.capacity else Where.HERE
    s.num_replayed += chain.num_to_replay()
    if s.phase is Phase.FREE:
        s.free.on[chain.first_slot] = {}
    return chain.replay(s.seeds)


def slots_for_free_tasks(s: StreamState) -> list[Slot]:
    """Return the slots to ask: if others help, only some of this machine's."""
    if not s.capacity or s.num_local is None:
        return list(s.free.on)
    here = [slot for slot in s.free.on if s.is_here(slot)]
    spared = set(here[s.num_local :])
    return [slot for slot in s.free.on if slot not in spared] or list(s.free.on)
