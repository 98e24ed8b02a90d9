"""Carries out what the decider decides: one loader's workers, their sockets and their memory."""

from stoker.loaders.driver.driver import (
    ENDED,
    TIMED_OUT,
    Died,
    Driver,
)
from stoker.loaders.driver.inbox import Failed, Told

__all__ = ["ENDED", "TIMED_OUT", "Died", "Driver", "Failed", "Told"]
