"""Watches what a sample depends on: generators, files, and whatever else the first ones use."""

from stoker.memory.watch.asked import Asked, are_same
from stoker.memory.watch.evidence import Evidence, is_traced
from stoker.memory.watch.files import (
    Identity,
    Opened,
    absolute,
    identities,
    identity_of,
    is_settled,
)
from stoker.memory.watch.lasting import codecs, foundations, lasting_of, sources
from stoker.memory.watch.learn import Finding, Lesson
from stoker.memory.watch.positions import Generators, Look, global_look
from stoker.memory.watch.reach import NO_STATE, Reach, State, reach_of, state_of
from stoker.memory.watch.readers import tell_of_readers

__all__ = [
    "NO_STATE", "Asked", "Evidence", "Finding", "Generators", "Identity", "Lesson", "Look", "Opened", "Reach", "State", "absolute", "are_same", "codecs",
    "foundations",
    "global_look", "identities", "identity_of", "is_settled", "is_traced", "lasting_of", "reach_of", "sources", "state_of", "tell_of_readers",
]  # fmt: skip
