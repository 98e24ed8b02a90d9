"""tests/equality/test_exceptions.py, on other machines."""

from tests.equality.test_exceptions import *  # noqa: F403
