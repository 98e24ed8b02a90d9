"""tests/equality/test_stateful.py, on other machines."""

from tests.equality.test_stateful import *  # noqa: F403
