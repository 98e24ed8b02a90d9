"""tests/equality/test_saved_states.py, on other machines."""

from tests.equality.test_saved_states import *  # noqa: F403
