"""Watches what a sample depends on: generators, files, and whatever else the first ones use."""

from stoker.memory.watch.evidence import Evidence, is_traced
from stoker.memory.watch.files import (
    Identity,
    Opened,
    are_same,
    identities,
    identity_of,
    is_settled,
)
from stoker.memory.watch.learn import Finding, Lesson
from stoker.memory.watch.positions import Look, global_look
from stoker.memory.watch.reach import UNKNOWN, State, reach_of, state_of
from stoker.memory.watch.readers import tell_of_readers

__all__ = [
    "UNKNOWN", "Evidence", "Finding", "Identity", "Lesson", "Look", "Opened", "State", "are_same",
    "global_look", "identities", "identity_of", "is_settled", "is_traced", "reach_of", "state_of",
    "tell_of_readers",
]  # fmt: skip
