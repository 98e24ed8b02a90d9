"""Same batches, same trainer randomness, over pairs of everything a loader can be made of."""

import itertools
from functools import partial

import pytest

from stoker.config import Settings
from tests.equality.cases import AXES, Case, check, make_loader, pairwise, three_epochs
from tests.equality.forms import FORMS
from tests.equality.sides import both

WITHOUT_FORM = {name: values for name, values in AXES.items() if name != "form"}
PAIRS = [
    Case(**row, form=form)
    for row, form in zip(pairwise(WITHOUT_FORM), itertools.cycle(FORMS), strict=False)
]


@pytest.fixture(autouse=True)
def other_machines_made_batches(places):
    yield
    assert places is None or places.num_away > 0, places.said


@pytest.mark.away_by_default
@pytest.mark.parametrize("case", PAIRS, ids=str)
def test_batches_and_trainer_randomness_are_those_of_torch(case):
    check(case)


@pytest.mark.cover(1)
@pytest.mark.parametrize("persistent", [False, True], ids=["forked anew", "persistent"])
@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_batch_arrives_as_from_torch(form, persistent):
    check(Case(form=form, persistent=persistent, draws="some"))


@pytest.mark.parametrize("draws", ["own", "all"])
@pytest.mark.parametrize("workers", [1, 3])
def test_persistent_workers_do_the_work_that_a_break_left_over(workers, draws):
    check(Case(workers=workers, draws=draws, persistent=True, prefetch=4))


@pytest.mark.parametrize("sampler", ["lazy", "shuffle"])
def test_more_chains_than_batches_are_as_more_workers_than_batches(sampler):
    both(
        partial(make_loader, Case(sampler=sampler), num_samples=5),
        three_epochs,
        workers=1,
        settings=Settings(chains="7", quiet=True),
    )
