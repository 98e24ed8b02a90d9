"""Watches what a sample depends on: generators, files, and whatever else the first ones use."""

from stoker.memory.watch.evidence import is_traced
from stoker.memory.watch.files import Identity, Opened, are_same, identities
from stoker.memory.watch.learn import Finding, Lesson
from stoker.memory.watch.positions import Look, global_look, library_generators
from stoker.memory.watch.readers import tell_of_readers

__all__ = [
    "Finding", "Identity", "Lesson", "Look", "Opened", "are_same", "global_look", "identities", "is_traced",
    "library_generators", "tell_of_readers",
]  # fmt: skip
