"""tests/equality/test_iterables.py, on other machines."""

from tests.equality.test_iterables import *  # noqa: F403
