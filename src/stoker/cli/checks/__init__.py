"""Checks what a command line asks for, before anything is started."""

from stoker.cli.checks.interpreter import check_interpreter
from stoker.cli.checks.reports import make_room
from stoker.cli.checks.services import (
    check_cluster,
    check_gradients,
    check_page,
    check_tensorboard,
)
from stoker.cli.checks.storage import start_storage

__all__ = [
    "advice",
    "check_cluster",
    "check_gradients",
    "check_interpreter",
    "check_page",
    "check_tensorboard",
    "make_room",
    "start_storage",
]


def advice(python: str, extra: str = "") -> str:
    """Return how to install this stoker for `python`; see checks/origin.py."""
    from stoker.cli.checks.origin import advice  # importlib.metadata: 20 ms, for the rarer case

    return advice(python, extra)
