"""Rules for tasks at home: each runs on its chain's own worker, in the chain's order.

Promise: a chain's tasks run at most once in each of its worker processes, and never earlier than
torch would have sent them; a worker that died is replaced, and its replacement replays what is
needed (rungs 1 to 4). Pure: no thread, clock, socket or torch.
"""

import sys

from stoker.scheduler.events import (
    Action,
    Arrived,
    Ask,
    Bounded,
    Closed,
    Drawn,
    Ended,
    Finish,
    PointTaken,
    Restarted,
    Resume,
    Start,
    StateSaved,
)
from stoker.scheduler.rules import losses, placement
from stoker.scheduler.state import Phase, StreamState
from stoker.scheduler.tasks.plan import Task
from stoker.scheduler.tasks.reorder import Reorder
from stoker.scheduler.tasks.slot import FINGERPRINT

# -- tasks go out --------------------------------------------------------------------------------


def drawn(s: StreamState, event: Drawn) -> list[Action]:
    s.waiting.append(next_task(s, event))
    return send_due(s)


def next_task(s: StreamState, event: Drawn) -> Task:
    task = Task(
        s.next_id, _pick_chain(s), event.body, epoch=len(s.seeds), wants_state=event.wants_state
    )
    s.next_id += 1
    return task


def _pick_chain(s: StreamState) -> int:
    """Pick the next task's chain: torch's round robin over those that are not over; out of order it
    skips workers that have enough to do.

    Source: torch/utils/data/dataloader.py `_try_put_index`, 2.13.
    """
    num_enough = sys.maxsize
    if not s.in_order:
        num_living = sum(not chain.is_over for chain in s.chains)
        num_enough = s.prefetch_factor * s.num_chains // num_living
    picked = 0
    for _ in range(s.num_chains):
        chain = s.chains[s.cursor]
        s.cursor = (s.cursor + 1) % s.num_chains
        if chain.is_over:
            continue
        picked = chain.number
        if chain.num_owed < num_enough:
            break
    return picked


def send_due(s: StreamState) -> list[Action]:
    """Send what torch would have sent by now."""
    due: list[Action] = []
    while s.waiting and s.waiting[0].id < s.schedule_end:
        due += _ask(s, s.waiting.popleft())
    return due


def _ask(s: StreamState, task: Task) -> list[Action]:
    chain = s.chains[task.chain]
    if chain.is_hopeless:
        return [losses.give_up(task, chain)]
    chain.asked(task)
    watch = s.phase is Phase.ASKED or chain.is_moving
    if not watch:
        chain.last_unwatched_id = task.id
    slots = (chain.slot,) if chain.second_slot is None else (chain.slot, chain.second_slot)
    return [Ask(slot, task, watch=watch) for slot in slots]


def taken(s: StreamState, task_id: int) -> list[Action]:
    """Note that a batch has left: what was drawn ahead may be due now."""
    s.free.taken(task_id)
    return send_due(s) if s.waiting else []


# -- answers come in -----------------------------------------------------------------------------


def arrived(s: StreamState, event: Arrived) -> list[Action]:
    slot, task_id = event.slot, event.task_id
    chain = s.chain_that_owes(slot, task_id)
    chain.answered()
    s.free.made_at_home(slot, task_id)
    if task_id >= s.first_id:
        s.reorder.hold(task_id, event.batch)
    return chain.settle(slot)


def ended(s: StreamState, event: Ended) -> list[Action]:
    """Skip what a worker owes beyond its end, as torch does; let it go if it has no next epoch."""
    chain = s.chain_that_owes(event.slot, event.task_id)
    dropped = chain.ended(len(s.seeds))
    for never in (event.task_id, *(task.id for task in dropped)):
        if never >= s.first_id:
            s.reorder.skip(never)
    s.num_dropped += sum(task.id >= s.first_id for task in dropped)
    return [] if s.persistent else [Finish(event.slot)]


def point_taken(s: StreamState, event: PointTaken) -> list[Action]:
    """Keep the Point that a chain's worker told: what it covers need not be made again."""
    chain, point = s.chains[event.chain], event.point
    chain.keep_point(point, s.fingerprint)
    if chain.is_moving and not chain.num_to_replay():
        return placement.move(s, chain)
    is_long = chain.nbytes > s.limits.long_history_nbytes
    if is_long and not s.has_asked_fingerprint:
        s.has_asked_fingerprint = True
        return [Start(FINGERPRINT, must_report=True)]
    return []


def state_saved(s: StreamState, event: StateSaved) -> list[Action]:
    s.chains[event.chain].saved(event.point)
    return []


def restarted(s: StreamState, event: Restarted) -> list[Action]:
    """Begin the next epoch. Owed tasks are still made, for they move the generators, then dropped.

    Not those that torch would not have sent yet: free ones leave no trace, so they are merely no
    longer owed to anybody.
    """
    s.free.restart(s.schedule_end)
    s.waiting.clear()
    s.first_id, s.num_dropped = s.next_id, 0
    s.cursor = s.first_chain = 0
    s.reorder = Reorder(s.next_id, s.in_order)
    if not (s.is_iterable or s.is_stateful):
        return []
    s.seeds.append(event.seed)
    for chain in s.chains:
        chain.is_over = False
    return [Resume(chain.slot, event.seed) for chain in s.chains if not chain.is_hopeless]


def bounded(s: StreamState, event: Bounded) -> list[Action]:
    s.max_held = min(s.max_held, event.max_held)
    return []


def closed(s: StreamState, event: Closed) -> list[Action]:
    s.phase = Phase.CLOSED
    return []
