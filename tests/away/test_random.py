"""tests/equality/test_random.py, on other machines."""

from tests.equality.test_random import *  # noqa: F403
