"""Holds the subcommands that run a command for a while, to learn something of it, and then end it."""

from importlib import import_module
from typing import Any


def subcommand(name: str) -> Any:
    """Return the module of a subcommand: `main` runs it; FLAGS are what it takes."""
    return import_module(f"{__name__}.{name}")
