"""The pairs of everything that a loader can be made of, on other machines."""

import pytest

from tests.equality.test_matrix import *  # noqa: F403


@pytest.fixture(autouse=True)
def other_machines_made_batches(places):
    yield
    assert places.num_away > 0, places.said
