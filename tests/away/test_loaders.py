"""tests/equality/test_loaders.py, on other machines."""

from tests.equality.test_loaders import *  # noqa: F403
