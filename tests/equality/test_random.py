"""Same batches, same trainer randomness, for loaders drawn at random from the whole product."""

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.equality.cases import AXES, Case
from tests.equality.test_matrix import check

LOADERS = st.builds(Case, **{name: st.sampled_from(values) for name, values in AXES.items()})


@settings(
    max_examples=40,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(LOADERS)
def test_a_loader_drawn_at_random_equals_torch(case):
    check(case)
