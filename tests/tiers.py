"""Which tests are of the default tier: `scripts/test` runs those, `scripts/test --full` all.

A test marked `full` is not. Of one with many cases the default tier runs some: `cover(n)` as many as
bring every n values of its parameters together at least once, `few(n)` n of them, spread evenly.
A test that is named on the command line by its file and `::` runs in either tier.
"""

import itertools
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import pytest


def split(items: list[pytest.Item], named: Iterable[str] = ()) -> tuple[list[Any], list[Any]]:
    """Those of the default tier, and the others, both in order."""
    is_full = {item: bool(item.get_closest_marker("full")) for item in items}
    products = defaultdict(list)
    for item in items:
        mark = item.get_closest_marker("cover") or item.get_closest_marker("few")
        if mark and not is_full[item]:
            place = item.callspec.params.get("fleet")  # tests/equality: here, or elsewhere
            products[item.nodeid.partition("[")[0], place, mark.name, *mark.args].append(item)
    for (_, _, how, num), cases in products.items():
        kept = few(len(cases), num) if how == "few" else cover([*map(_values, cases)], num)
        is_full |= {case: k not in kept for k, case in enumerate(cases)}
    for item in items:
        is_full[item] &= not any(item.nodeid.startswith(name) for name in named)
    return [i for i in items if not is_full[i]], [i for i in items if is_full[i]]


def _values(case: Any) -> frozenset[tuple[str, int]]:
    """Of one test's cases: the same value is the same object in all of them."""
    return frozenset((name, id(value)) for name, value in case.callspec.params.items())


def few(num_cases: int, num: int) -> set[int]:
    return {k * num_cases // num for k in range(num)}


def cover(cases: list[frozenset[Any]], strength: int) -> set[int]:
    """Numbers of cases in which every `strength` values that meet in one of them meet. Greedy.

    cases: of each the values, all of different axes.
    """
    meetings = [set(map(frozenset, itertools.combinations(case, strength))) for case in cases]
    missing = set().union(*meetings)
    chosen = set()
    while missing:
        best = max(range(len(cases)), key=lambda k: len(meetings[k] & missing))
        missing -= meetings[best]
        chosen.add(best)
    return chosen


def groups_of_files(items: list[pytest.Item], folders: Iterable[str]) -> None:
    """The tests of a file below these folders in one process: what their fixtures start is dear."""
    for item in items:
        if item.nodeid.startswith(tuple(folders)) and not item.get_closest_marker("xdist_group"):
            item.add_marker(pytest.mark.xdist_group(item.nodeid.partition("::")[0]))
