"""tests/equality/test_kept.py, on other machines."""

from tests.equality.test_kept import *  # noqa: F403
