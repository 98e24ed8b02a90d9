"""tests/equality/test_in_process.py, on other machines."""

import pytest

from tests.equality.test_in_process import *  # noqa: F403

# They look for processes of this machine, where only stand-ins of theirs are meant.
del test_processes_that_are_killed_change_nothing  # noqa: F821
del test_processes_that_hang_are_given_up  # noqa: F821
del test_the_processes_end_with_their_iterator  # noqa: F821


@pytest.fixture(scope="module", autouse=True)
def other_machines_made_batches():
    yield
    assert num_away["all"] > 0


num_away = {"all": 0}


@pytest.fixture(autouse=True)
def count(places):
    yield
    num_away["all"] += places.num_away
