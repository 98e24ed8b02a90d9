"""Objects of every kind that pickle knows, through the default collate function and without it."""

import array
import datetime
import decimal
import enum
import fractions
import pathlib
import uuid
from collections import Counter, OrderedDict, defaultdict, deque, namedtuple
from dataclasses import dataclass

from torch.utils.data import DataLoader

Point = namedtuple("Point", "x y")


class Colour(enum.Enum):
    RED = 1


@dataclass(frozen=True)
class Box:
    corner: Point
    size: tuple


THINGS = [
    "text", b"bytes" * 3, Point(1, 2), Colour.RED, Box(Point(1, 2), (3,)), {1, 2}, frozenset("a"),
    range(3), slice(1, 2), decimal.Decimal("1.10"), fractions.Fraction(1, 3), 1 << 100, 1j,
    datetime.date(2020, 1, 2), pathlib.Path("a/b"), uuid.UUID(int=5), Counter("aab"),
    OrderedDict(b=1, a=2), defaultdict(list, {1: [2]}), deque([1, 2], 3), array.array("d", [1.5]),
    bytearray(b"x" * 100_000), len, int, Point, "\ud800", "é" * 3, float("inf"),
]  # fmt: skip
for workers in (0, 2):
    loader = DataLoader(
        range(len(THINGS)), None, num_workers=workers, collate_fn=THINGS.__getitem__
    )
    print([repr(thing)[:60] for thing in loader])
    trees = [{"p": Point(i, str(i)), "d": {"n": [i, (i, 0.5)]}, "b": bytes([i])} for i in range(4)]
    print(list(DataLoader(trees, 2, num_workers=workers)))
