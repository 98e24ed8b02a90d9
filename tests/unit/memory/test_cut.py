"""Splitting: at each step of each form, prefix and second half give what the function gives."""

import random
import traceback

import pytest

from stoker.memory.cut import NotCuttable, Split
from tests.unit.memory import functions


def outcome(call):
    """What a call returns or raises, and where the generator stands after it."""
    random.seed(1)
    try:
        value = call()
        if isinstance(value, tuple) and callable(value[-1]):
            value = (*value[:-1], value[-1]())
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        lines = [(f.filename, f.lineno, f.name) for f in frames if f.filename == functions.__file__]
        value = (type(error), str(error), lines)
    return value, random.random()


def in_halves(halves, dataset, index, is_hit):
    given = dict(zip(halves.parameters, (dataset, index), strict=False))
    reached = halves.kept(halves.front(dataset, index), given, dataset)
    reached = reached._replace(values=dict(reached.values))
    return halves.rest(reached, given, dataset, is_hit)()


def stepped(split, dataset, index):
    steps = []
    value = split.watched(steps.append, lambda step, callee: callee)(dataset, index)
    assert steps == sorted(steps)
    return value


@pytest.mark.parametrize("kind", functions.FORMS, ids=lambda kind: kind.__name__)
def test_both_halves_give_what_the_function_gives_at_every_step(kind):
    dataset = kind()
    split = Split(kind.__getitem__)
    assert split.num_steps > 1
    for index in range(len(dataset)):
        expected = outcome(lambda: dataset[index])  # noqa: B023
        assert outcome(lambda: stepped(split, dataset, index)) == expected  # noqa: B023
        for step in range(split.num_steps):
            halves = split.at(step)
            for is_hit in (False, True):
                found = outcome(lambda: in_halves(halves, dataset, index, is_hit))  # noqa: B023
                assert found == expected, f"step {step}"


@pytest.mark.parametrize("index", [0, 3])
def test_nothing_is_looked_up_later_than_it_would_be(index):
    kind = functions.LooksUpFirst
    split = Split(kind.__getitem__)
    expected = outcome(lambda: kind()[index])
    assert outcome(lambda: stepped(split, kind(), index)) == expected
    for step in range(split.num_steps):
        found = outcome(lambda: in_halves(split.at(step), kind(), index, is_hit=False))  # noqa: B023
        assert found == expected, f"step {step}"


def test_a_step_is_known_by_its_line():
    split = Split(functions.OneLine.__getitem__)
    assert len(set(split.lines)) == 1
    assert split.num_steps == 5  # an item, load, transform, another item, return


def test_a_step_that_does_not_exist_is_refused():
    with pytest.raises(NotCuttable, match="no step 5"):
        Split(functions.OneLine.__getitem__).at(5)


def test_only_what_is_read_later_is_live():
    halves = Split(functions.OneLine.__getitem__).at(2)
    assert halves.live == [["@1", "i", "self"]]
    dataset = functions.OneLine()
    reached = halves.kept(halves.front(dataset, 2), {"i": 2}, dataset)
    assert (reached.values, reached.mine) == ({"@1": 8}, ("self",))


@pytest.mark.parametrize("kind", functions.LEFT, ids=lambda kind: kind.__name__)
def test_what_a_split_would_change_is_left_alone(kind):
    with pytest.raises(NotCuttable, match=functions.LEFT[kind]):
        Split(getattr(kind, "__getitem__", kind))


def test_a_source_that_was_changed_is_left_alone(tmp_path):
    file = tmp_path / "edited.py"
    file.write_text("def __getitem__(self, i):\n    return i + 1\n")
    space = {}
    exec(compile(file.read_text(), str(file), "exec"), space)
    file.write_text("def __getitem__(self, i):\n    return i + 2\n")
    with pytest.raises(NotCuttable, match="changed"):
        Split(space["__getitem__"])


def test_a_source_that_is_gone_is_left_alone():
    space = {}
    exec(compile("def f(self, i): return i", "<nowhere>", "exec"), space)
    with pytest.raises(NotCuttable, match="not there"):
        Split(space["f"])


def test_c_functions_are_left_alone():
    with pytest.raises(NotCuttable):
        Split(list.__getitem__)
