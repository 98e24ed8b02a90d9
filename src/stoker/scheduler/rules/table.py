"""Maps each event, in each phase, to its rule and to the phases that it may lead to.

A pair that is not in TABLE cannot occur. docs/architecture.md has a picture that is made from it.
Pure: no thread, clock, socket or torch.
"""

from collections.abc import Callable
from typing import NamedTuple

from stoker.scheduler.events import (
    Action,
    Arrived,
    Bounded,
    Closed,
    Drawn,
    Ended,
    Event,
    FreeArrived,
    Late,
    Lost,
    NotIndependent,
    Offered,
    PointTaken,
    ReplayDiverged,
    Restarted,
    StateSaved,
    WorkerReady,
)
from stoker.scheduler.rules import chains, fan_out, hedging, losses, placement, retreat
from stoker.scheduler.state import Phase

HOME, ASKED, FREE, BARRED, CLOSED = Phase


class Rule(NamedTuple):
    """A rule. act(state, event) -> actions; to: phases that it may lead to, beside its own."""

    act: Callable[..., list[Action]]
    to: tuple[Phase, ...] = ()


_AT_HOME = {
    Drawn: Rule(chains.drawn),
    Arrived: Rule(chains.arrived),
    Lost: Rule(losses.lost),
    Offered: Rule(placement.offered),
    Late: Rule(hedging.late),
    Bounded: Rule(chains.bounded),
    Restarted: Rule(chains.restarted),
    Closed: Rule(chains.closed, to=(CLOSED,)),
}
TABLE: dict[Phase, dict[type[Event], Rule]] = {
    HOME: _AT_HOME
    | {
        Ended: Rule(chains.ended),
        ReplayDiverged: Rule(losses.replay_diverged),
        StateSaved: Rule(chains.state_saved),
        PointTaken: Rule(fan_out.point_taken_at_home, to=(ASKED, BARRED)),
        WorkerReady: Rule(fan_out.worker_ready, to=(BARRED,)),
    },
    ASKED: _AT_HOME
    | {
        PointTaken: Rule(fan_out.point_taken, to=(FREE, BARRED)),
        WorkerReady: Rule(fan_out.worker_ready, to=(FREE, BARRED)),
        Lost: Rule(fan_out.lost, to=(BARRED,)),
        Offered: Rule(fan_out.offered),
    },
    FREE: _AT_HOME
    | {
        Drawn: Rule(fan_out.drawn),
        Arrived: Rule(fan_out.arrived_at_home),
        FreeArrived: Rule(fan_out.arrived),
        PointTaken: Rule(fan_out.point_taken, to=(BARRED,)),
        WorkerReady: Rule(fan_out.worker_ready, to=(BARRED,)),
        NotIndependent: Rule(retreat.not_independent, to=(BARRED,)),
        Lost: Rule(fan_out.lost, to=(BARRED,)),
        Offered: Rule(fan_out.offered, to=(BARRED,)),
        Late: Rule(hedging.late_free),
    },
    BARRED: _AT_HOME
    | {
        FreeArrived: Rule(fan_out.crossed),
        PointTaken: Rule(chains.point_taken),
        WorkerReady: Rule(fan_out.worker_ready),
        NotIndependent: Rule(retreat.not_independent),
    },
}
OF_ITERABLES = (Ended, ReplayDiverged, StateSaved)  # of a loader over anything else they cannot be
