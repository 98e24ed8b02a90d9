"""Cuts inside what a step calls: at each part of each callee, both halves give what the function
gives."""

import contextlib
import random
import traceback

import pytest

from stoker.memory.cut import RETURNED, AnotherCallee, NotCuttable, cut_at, split_of, target_of
from tests.unit.memory import called, functions

FILES = {called.__file__, functions.__file__}


def outcome(call, dataset):
    """What a call returns or raises, its traceback, and what it leaves behind."""
    random.seed(1)
    try:
        value = call()
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        names = [(f.filename, f.lineno, f.name) for f in frames]
        first = next(k for k, name in enumerate(names) if name[0] in FILES)
        value = (type(error), str(error), names[first:])
    return value, random.random(), sorted(vars(dataset))


class Cut:
    """A dataset's `__getitem__`, cut at a path."""

    def __init__(self, kind, path):
        self.halves, self.link = cut_at(kind.__getitem__, path)

    def given(self, dataset, index):
        return dict(zip(self.halves.parameters, (dataset, index), strict=True))

    def first(self, dataset, index):
        returned = self.halves.front(dataset, index)
        return self.halves.kept(returned, self.given(dataset, index), dataset)

    def second(self, dataset, index, reached, is_hit):
        if self.link is not None:
            self.link.begin(dataset, is_hit)
        return self.halves.rest(reached, self.given(dataset, index), dataset, is_hit)()


def paths_inside(kind, index):
    """List the steps of a `__getitem__` that is called, with the steps of what they call, and some
    that may be there below those."""
    paths = []

    def enter(step, callee):
        target = target_of(callee)
        if target is not None:
            num = split_of(target.function).num_steps
            paths.extend((step, part) for part in range(num))
            paths.extend((step, part, below) for part in range(num) for below in range(1, 6))
        return callee

    with contextlib.suppress(LookupError):
        split_of(kind.__getitem__).watched(lambda step: None, enter)(kind(), index)
    return paths


@pytest.mark.parametrize("kind", called.FORMS, ids=lambda kind: kind.__name__)
def test_both_halves_give_what_the_function_gives_at_every_part(kind):
    num_inside = 0
    for index in range(5):
        for path in paths_inside(kind, index):
            try:
                cut = Cut(kind, path)
            except NotCuttable:
                continue
            plain, parted = kind(), kind()
            expected = outcome(lambda: plain[index], plain)  # noqa: B023

            def run():
                reached = cut.first(parted, index)  # noqa: B023
                return cut.second(parted, index, reached, is_hit=False)  # noqa: B023

            assert outcome(run, parted) == expected, f"path {path}"
            num_inside += cut.link is not None and cut.link.met is not None
    assert num_inside > 5


def test_what_was_begun_is_ended_though_it_was_forgotten(monkeypatch):
    cut, dataset = Cut(called.TwoLevels, (1, 2, 1)), called.TwoLevels()
    cut.first(dataset, 2)
    monkeypatch.setattr(called, "inner", lambda x, of: x + functions.noisy(len(of)))
    expected = outcome(lambda: called.TwoLevels()[2], dataset)

    def run():
        reached = cut.first(dataset, 2)
        assert any(link.has_changed for link in cut.link.chain())
        cut.link.forget()
        return cut.second(dataset, 2, reached, is_hit=False)

    assert outcome(run, dataset) == expected


@pytest.mark.parametrize(
    ("kind", "path"),
    [(called.Function, (1, 3)), (called.Method, (2, 1)), (called.OfAParent, (0, 2, 1))],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_what_is_called_is_known_before_it_is(kind, path):
    cut = Cut(kind, path)
    dataset = kind()
    cut.link.expect(cut.halves, dataset)
    assert all(link.met is not None for link in cut.link.chain())
    assert len(list(cut.link.chain())) == len(path) - 1


def test_a_hit_runs_nothing_of_the_first_half(monkeypatch):
    cut, dataset = Cut(called.Function, (1, 3)), called.Function()
    reached = cut.first(dataset, 2)
    assert reached.inner.values == {"x": 9, "scale": 2, "more": (), "others": {}}
    monkeypatch.setattr(called, "load", None)
    random.seed(3)
    assert cut.second(dataset, 2, reached, is_hit=True)[0][1] == (9 + random.Random(3).random()) * 2


@pytest.mark.parametrize("changed", ["function", "code", "defaults", "owner"])
def test_another_callee_is_noticed_before_anything_of_the_second_half_runs(changed, monkeypatch):
    kind, path = (called.AnObject, (1, 2)) if changed == "owner" else (called.Function, (1, 3))
    cut, dataset = Cut(kind, path), kind()
    reached = cut.first(dataset, 2)
    assert reached.inner.way >= 0
    if changed == "function":
        monkeypatch.setattr(called, "augment", lambda x: x)
    elif changed == "code":
        monkeypatch.setattr(called.augment, "__code__", called.inner.__code__)
    elif changed == "defaults":
        monkeypatch.setattr(called.augment, "__defaults__", (5,))
    else:
        dataset.augment = called.Augment(3)
    random.seed(4)
    with pytest.raises(AnotherCallee):
        cut.second(dataset, 2, reached, is_hit=True)
    assert random.random() == random.Random(4).random()
    if changed == "owner":
        assert cut.first(dataset, 3).inner.way == RETURNED  # all of it was called
        assert cut.link.has_changed


def test_what_draws_in_c_or_in_a_library_is_not_entered():
    for callee in (len, random.random, random.Random().random, functions.Base, 5):
        assert target_of(callee) is None
