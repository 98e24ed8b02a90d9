"""Defines the events that a decider is told, and the actions that it returns. Pure."""

from typing import NamedTuple

from stoker.scheduler.tasks.plan import Task
from stoker.scheduler.tasks.point import Point, SavedPoint
from stoker.scheduler.tasks.slot import Exit, Slot

# -- events ------------------------------------------------------------------------------------


class Drawn(NamedTuple):
    """The sampler gave one more index list. wants_state: see Task."""

    body: bytes
    wants_state: bool = False


class Arrived(NamedTuple):
    """A batch, made by its chain's worker in the chain's order."""

    slot: Slot
    task_id: int
    batch: object


class FreeArrived(NamedTuple):
    """A batch, made as a free-standing task."""

    slot: Slot
    task_id: int
    batch: object


class Ended(NamedTuple):
    """A chain's iterable has ended: this task and the later ones that the chain owes never come."""

    slot: Slot
    task_id: int


class PointTaken(NamedTuple):
    """A chain's worker sent a Point."""

    chain: int
    point: Point


class StateSaved(NamedTuple):
    """A chain's worker has saved its iterable's state."""

    chain: int
    point: SavedPoint


class WorkerReady(NamedTuple):
    """A worker has begun; resumed: from the Point that it was given."""

    slot: Slot
    fingerprint: bytes
    resumed: bool = False


class NotIndependent(NamedTuple):
    """A task was not free-standing after all. why: "drew" or "moved"; in words, if the loader has
    no workers."""

    slot: Slot
    task_id: int
    why: str


class ReplayDiverged(NamedTuple):
    """A replacement's replay differed from what came after the iterable's saved state."""

    slot: Slot


class Lost(NamedTuple):
    """A slot's worker ended unasked. how: None if its machine or the connection was lost, which no
    task is to blame for; was_given_back: its machine was given back, since fewer are wanted; begun:
    the task that it was making, unless it replayed it, negative for none; None if that could not be
    seen; is_ours: stoker's own code failed in it."""

    slot: Slot
    how: Exit | None
    was_given_back: bool = False
    begun: int | None = None
    is_ours: bool = False


class Offered(NamedTuple):
    """Other machines have unpacked the job. capacity: workers that they may have at once;
    num_local: workers that this machine may have beside the training loop; fingerprint: of the job
    at iter(), which theirs is too; crowd: slots of workers that share a host while another has
    fewer."""

    capacity: int
    num_local: int
    fingerprint: bytes
    crowd: tuple[Slot, ...] = ()


class Late(NamedTuple):
    """The batch that leaves next, which `slot` owes, takes longer than most have. late_s: time
    since its worker could begin; task_s: a worker's mean time for a batch."""

    slot: Slot
    task_id: int
    late_s: float
    task_s: float


class Bounded(NamedTuple):
    """This machine allows less than was thought. max_held: batches that memory has room for, beyond
    torch's own."""

    max_held: int


class Restarted(NamedTuple):
    """The script began the next epoch on living workers. seed: see Resume."""

    seed: bytes = b""


class Closed(NamedTuple):
    pass


Event = (
    Drawn
    | Arrived
    | FreeArrived
    | Ended
    | PointTaken
    | StateSaved
    | WorkerReady
    | NotIndependent
    | ReplayDiverged
    | Lost
    | Offered
    | Late
    | Bounded
    | Restarted
    | Closed
)

# -- actions -----------------------------------------------------------------------------------


class Ask(NamedTuple):
    slot: Slot
    task: Task
    quiet: bool = False
    free: bool = False
    watch: bool = False  # the answer shall carry a Point


class Start(NamedTuple):
    """Start a worker there, from `point` if it can. must_report: it shall tell its fingerprint;
    away: on another machine; after_s: not before."""

    slot: Slot
    point: Point | None = None
    must_report: bool = False
    away: bool = False
    after_s: float = 0.0


class Resume(NamedTuple):
    """Begin the next epoch, as torch does on living workers. seed: of a DataPipe, encoded."""

    slot: Slot
    seed: bytes


class Rerun(NamedTuple):
    """Fetch so many batches of the iterable again, and discard them."""

    slot: Slot
    num_batches: int
    body: bytes  # as of a Task
    wants_state: bool = False  # each of them did


class Reload(NamedTuple):
    """Go on from the iterable's saved state, if a replay of what came after it is the same."""

    slot: Slot
    point: SavedPoint
    body: bytes  # as of a Task


class Finish(NamedTuple):
    """Let a worker that has nothing more to do leave by itself."""

    slot: Slot


class Kill(NamedTuple):
    slot: Slot


class GiveUp(NamedTuple):
    """No worker can do this task. how: the last one ended, or why there is none. num_in_vain:
    workers that died in a row before they gave any batch; 0: the task itself is to blame."""

    task: Task
    how: Exit | str
    num_in_vain: int = 0


Action = Ask | Start | Resume | Rerun | Reload | Finish | Kill | GiveUp

# -- equality ----------------------------------------------------------------------------------


def _is_same(one: tuple[object, ...], other: object) -> bool:
    return type(one) is type(other) and tuple.__eq__(one, other)


def _is_another(one: tuple[object, ...], other: object) -> bool:
    return not _is_same(one, other)


# Else a Kill equals a Finish, which has the same fields. Dataclasses would need none of this, but
# making two dozen classes of them takes 10 ms of the first iter().
for _kind in (*Event.__args__, *Action.__args__):
    for _name, _how in (("__eq__", _is_same), ("__ne__", _is_another)):
        setattr(_kind, _name, _how)
