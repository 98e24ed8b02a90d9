"""Runs one loader's workers, with their sockets and memory, as the decider (scheduler/) says."""

from stoker.loaders.driver.driver import (
    ENDED,
    TIMED_OUT,
    Died,
    Driver,
)
from stoker.loaders.driver.inbox import Failed, Told

__all__ = ["ENDED", "TIMED_OUT", "Died", "Driver", "Failed", "Told"]
