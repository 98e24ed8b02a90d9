"""What the receiver asks of whoever has machines: which hosts run, and where they can reach it.

One contract suite (tests/contract/) runs on every implementation.
"""

from collections.abc import Callable
from typing import Any, Protocol


class Engine(Protocol):
    """Starts hosts (host/host.py) on a cluster's machines, and again where they end.

    Owner: one thread; every call may wait. Whatever it started ends when this process does.
    """

    def address_of_trainer(self) -> str:
        """Of the interface by which the cluster reaches this machine. Raises where there is no
        cluster."""

    def run(self, way: dict[str, Any], tell: Callable[[str], None]) -> None:
        """Keep hosts running, each told `way` with its name and node. Never returns.

        tell: called with what the user should know, one line each.
        """


def make_engine(settings: dict[str, Any]) -> Engine:
    """The engine that `--cluster` names."""
    if settings["cluster"].startswith("processes:"):
        from stoker.cluster.processes import Processes

        return Processes(settings)
    from stoker.cluster.ray import RayEngine

    return RayEngine(settings)
