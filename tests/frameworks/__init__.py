"""Frameworks' own training loops under stoker; here so that a failed comparison shows its two sides."""

import pytest

pytest.register_assert_rewrite("tests.frameworks.sides")
