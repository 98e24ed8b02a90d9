"""tests/equality/test_many_loaders.py, on other machines."""

from tests.equality.test_many_loaders import *  # noqa: F403
