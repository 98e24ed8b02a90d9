"""Rules for each event: functions of a stream's state and an event, which return actions."""

from stoker.scheduler.rules.chains import taken
from stoker.scheduler.rules.table import OF_ITERABLES, TABLE, Rule

__all__ = ["OF_ITERABLES", "TABLE", "Rule", "taken"]
