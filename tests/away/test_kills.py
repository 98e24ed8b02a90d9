"""tests/equality/test_kills.py, on other machines."""

from tests.equality.test_kills import *  # noqa: F403
