"""Bodies from a grammar: split at each of their steps they give what they give in one piece, from what
was kept as well, or they are refused."""

import contextlib
import random
import types

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stoker.memory.cut import NotCuttable, Split
from stoker.memory.cut.halves import Reached
from stoker.memory.store import NotStorable, Value, encode, is_alone
from tests.unit.memory.bodies import Grammar


def told(value):
    """What tells a value; functions and generators by what they give."""
    if isinstance(value, types.GeneratorType):
        return [told(each) for each in value]
    if isinstance(value, types.FunctionType):
        return told(value())
    if isinstance(value, (tuple, list)):
        return [type(value).__name__, *map(told, value)]
    return repr(value)


def outcome(call):
    """What a call returns, and where the generator stands after it; None if it raises: then it is the
    dataset's own error that a loop gets (proof.py)."""
    random.seed(1)
    try:
        return told(call()), random.random()
    except Exception:
        return None


def as_kept(reached):
    """What a hit goes on from: None if it cannot be kept."""
    with contextlib.suppress(NotStorable):
        levels = reached.items()
        if all(is_alone(levels[1], name) for name in levels[1]):
            value = b"".join(part.tobytes() for part in encode(([], *levels)))
            items = Value(memoryview(bytearray(value))).items(True)
            next(items)
            return Reached.of_items(list(items))
    return None


def in_halves(halves, kind, index, is_hit):
    dataset = kind()
    given = dict(zip(halves.parameters, (dataset, index), strict=True))
    reached = halves.kept(halves.front(dataset, index), given, dataset)
    kept = as_kept(reached) if is_hit else None
    return halves.rest(kept or reached, given, dataset, kept is not None)()


def check(source, path):
    """Whether the body was split; asserts that both halves give what it gives."""
    path.write_text(source)
    space = {"__name__": "body"}
    try:
        exec(compile(source, str(path), "exec"), space)
    except SyntaxError:  # a walrus in the iterable of a comprehension
        return False
    kind = space["Data"]
    try:
        split = Split(kind.__getitem__)
    except NotCuttable:
        return False
    for index in (0, 2):
        expected = outcome(lambda: kind()[index])  # noqa: B023
        for step in range(split.num_steps):
            halves = split.at(step)
            for is_hit in (False, True):
                found = outcome(lambda: in_halves(halves, kind, index, is_hit))  # noqa: B023
                assert found == expected, f"step {step}, hit {is_hit}\n{source}"
    return True


@pytest.mark.parametrize("num", [20, pytest.param(1000, marks=pytest.mark.full)])
def test_a_body_is_split_rightly_or_refused(num, tmp_path):
    numbers, were_split = iter(range(10 * num)), []

    @settings(max_examples=num, deadline=None)
    @given(st.integers(0, 1 << 64))
    def run(seed):
        were_split.append(check(Grammar(seed).source(), tmp_path / f"body{next(numbers)}.py"))

    run()
    print(f"{sum(were_split)} of {len(were_split)} bodies were split")
    assert sum(were_split) > len(were_split) // 5  # of many two thirds
