"""Decides what one loader's stream of batches does next: step(event) -> actions.

Nothing else decides. The table in `rules/` says which rule an event calls in which phase. A pair
that is not in it raises BrokenGuarantee with the story so far.
Pure: no thread, clock, socket or torch.
"""

from stoker.scheduler.events import Action, Arrived, Drawn, Event, FreeArrived
from stoker.scheduler.rules import OF_ITERABLES, TABLE, taken
from stoker.scheduler.state import Phase, StreamState

_UNTOLD = (Drawn, Arrived, FreeArrived)  # so many that the story would hold nothing else


class Stream(StreamState):
    """The decider of one loader, from its iter() to its end."""

    __slots__ = ()

    def step(self, event: Event) -> list[Action]:
        """Return what to do about an event. Raises BrokenGuarantee on one that cannot occur."""
        if self.phase is Phase.CLOSED:
            return []  # late news after close is normal
        kind = type(event)
        rule = TABLE[self.phase].get(kind)
        if rule is None or (kind in OF_ITERABLES and not self.is_iterable):
            raise self.broken(f"{event!r} while {self.phase.name}")
        before = self.phase
        actions = rule.act(self, event)
        if self.phase is not before and self.phase not in rule.to:
            raise self.broken(f"{event!r} led from {before.name} to {self.phase.name}")
        if kind not in _UNTOLD:
            self.story.append(f"{str(event)[:120]} -> {self.phase.name}, {len(actions)} actions")
        return actions

    def taken(self, task_id: int) -> list[Action]:
        """Note that a batch has left: what was drawn ahead may be due now."""
        return taken(self, task_id)
