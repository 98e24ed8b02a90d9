"""The decider's table: what is not in it cannot be, and a rule leads nowhere else than it says."""

import pytest

from stoker.errors import BrokenGuarantee
from stoker.scheduler import events
from stoker.scheduler.decider import Stream
from stoker.scheduler.history import Where
from stoker.scheduler.rules import OF_ITERABLES, TABLE, Rule
from stoker.scheduler.state import Phase
from stoker.scheduler.tasks.point import SavedPoint
from tests.slots import C

EXAMPLES = {
    events.Ended: events.Ended(C[0], 0),
    events.ReplayDiverged: events.ReplayDiverged(C[0]),
    events.StateSaved: events.StateSaved(0, SavedPoint(b"", b"", ())),
    events.NotIndependent: events.NotIndependent(C[0], 0, "drew"),
    events.FreeArrived: events.FreeArrived(C[0], 0, "batch"),
}
CANNOT_BE = [
    (phase, event)
    for phase, rules in TABLE.items()
    for event in events.Event.__args__
    if event not in rules
]


def _named(one: object) -> str:
    return one.name if isinstance(one, Phase) else one.__name__


def stream_in(phase, **options):
    stream = Stream(num_chains=2, prefetch_factor=2, num_slots=4, may_be_free=True, **options)
    stream.step(events.Drawn(b""))
    stream.phase = phase
    return stream


def test_every_phase_but_the_last_has_its_rules_and_can_be_reached():
    assert set(TABLE) == set(Phase) - {Phase.CLOSED}
    reached = {to for rules in TABLE.values() for rule in rules.values() for to in rule.to}
    assert reached == set(Phase) - {Phase.HOME}


@pytest.mark.parametrize(("phase", "event"), CANNOT_BE, ids=_named)
def test_a_pair_that_is_not_in_the_table_raises_with_the_story_and_does_nothing(phase, event):
    stream = stream_in(phase)
    stream.step(events.Late(C[0], 0, 1.0, 1.0))
    owed, where = stream.chains[0].owed, stream.chains[0].where
    with pytest.raises(
        BrokenGuarantee, match=f"{event.__name__}.* while {phase.name}; story: Late"
    ):
        stream.step(EXAMPLES[event])
    assert (stream.phase, stream.chains[0].owed, stream.chains[0].where) == (phase, owed, where)
    assert where is Where.HERE


@pytest.mark.parametrize("event", OF_ITERABLES, ids=lambda one: one.__name__)
def test_what_only_an_iterable_can_tell_raises_for_other_loaders(event):
    with pytest.raises(BrokenGuarantee, match=event.__name__):
        stream_in(Phase.HOME).step(EXAMPLES[event])
    stream = stream_in(Phase.HOME, is_iterable=True)
    stream.step(EXAMPLES[event])
    assert stream.chains[0].is_over == (event is events.Ended)


def test_a_rule_that_leads_where_it_may_not_raises(monkeypatch):
    def astray(stream, event):
        stream.phase = Phase.FREE
        return []

    monkeypatch.setitem(TABLE[Phase.HOME], events.Drawn, Rule(astray, to=(Phase.BARRED,)))
    with pytest.raises(BrokenGuarantee, match=r"Drawn.* led from HOME to FREE"):
        stream_in(Phase.HOME)
