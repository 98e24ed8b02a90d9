"""tests/equality/test_batches.py, on other machines."""

from tests.equality.test_batches import *  # noqa: F403
