"""Defines what `stoker doctor` tells the script's processes, and what they leave for it. Pure."""

import json
from collections.abc import Mapping
from typing import NamedTuple

VARIABLE = "STOKER_DOCTOR"
FOUND = "found-"  # begins the name of a file of facts, in the plan's folder
PID = "pid-"  # and of a process that has iterated a loader


class Plan(NamedTuple):
    """folder: for what is found; num_steps: to look at, 0: until they are steady; limit_s: of all of it, at most."""

    folder: str
    num_steps: int
    limit_s: float

    def to_env(self) -> dict[str, str]:
        return {VARIABLE: json.dumps(self._asdict())}


def plan_of(environ: Mapping[str, str]) -> Plan | None:
    text = environ.get(VARIABLE)
    return None if text is None else Plan(**json.loads(text))
