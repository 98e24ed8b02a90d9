"""Same batches, same trainer randomness, for loaders drawn at random from the whole product."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.equality.cases import AXES, Case, check

LOADERS = st.builds(Case, **{name: st.sampled_from(values) for name, values in AXES.items()})


@pytest.mark.parametrize("num", [10, pytest.param(60, marks=pytest.mark.full)])
def test_a_loader_drawn_at_random_equals_torch(num):
    @settings(
        max_examples=num,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=[HealthCheck.too_slow],
    )
    @given(LOADERS)
    def equal(case):
        check(case)

    equal()
