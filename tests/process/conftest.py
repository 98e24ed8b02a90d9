"""Of all tests here."""

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def kernels() -> Path:
    """XDG_CACHE_HOME of scripts that compress gradients: loops are compiled once, by whoever is first,
    not in each test's own home."""
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
