"""Splits a function at one of its steps, on its source's syntax tree, and inside what that calls."""

from stoker.memory.cut.callee import UNKNOWN, computes_attributes, of_class, target_of
from stoker.memory.cut.compose import length_of, watched
from stoker.memory.cut.halves import RETURNED, Halves, NotCuttable, Reached, Split
from stoker.memory.cut.link import AnotherCallee, Level, Link, cut_at, split_of

__all__ = [
    "RETURNED", "UNKNOWN", "AnotherCallee", "Halves", "Level", "Link", "NotCuttable", "Reached",
    "Split", "computes_attributes", "cut_at", "length_of", "of_class", "split_of", "target_of",
    "watched",
]  # fmt: skip
