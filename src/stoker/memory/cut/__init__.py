"""Splits a function at one of its steps, on its source's syntax tree."""

from stoker.memory.cut.compose import length_of, watched
from stoker.memory.cut.halves import FRONT, RETURNED, Halves, NotCuttable, Parts, Reached, Split
from stoker.memory.cut.head import AnotherCompose, Head

__all__ = [
    "FRONT", "RETURNED", "AnotherCompose", "Halves", "Head", "NotCuttable", "Parts", "Reached", "Split",
    "length_of",
    "watched",
]  # fmt: skip
