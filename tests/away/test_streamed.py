"""tests/equality/test_streamed.py, on other machines."""

from tests.equality.test_streamed import *  # noqa: F403
