"""Defines the plan that one side of `stoker verify` gets, and the record that its processes write.

    plan     one variable, which every process that the command starts inherits
    record   one file a process, JSON lines: process, loader, offload, batch ..., stop

The plan is no setting of `stoker run`. Pure.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

VARIABLE = "STOKER_PROOF"  # intercept/arm.py looks for it too, without importing this
PROBE = "STOKER_PROBE"  # the folder of `stoker probe`, for every process that its command starts
PROBED = "probed.json"  # there: what a rank has found, or why there is nothing to be found
ENOUGH = "enough"  # there: a rank of this machine has seen enough
STOPS = "stops"  # a named pipe: a process that is asked to end writes its pid there
SEED = 0  # of `random`, NumPy and torch; PYTHONHASHSEED where the user gave none


class Plan(NamedTuple):
    """A run's plan. folder: of the records and STOPS; until_s: on the machine's monotonic clock."""

    folder: str
    num_batches: int
    until_s: float

    def to_env(self) -> dict[str, str]:
        return {VARIABLE: json.dumps(self._asdict())}


def plan_of(environ: Mapping[str, str]) -> Plan | None:
    text = environ.get(VARIABLE)
    return None if text is None else Plan(**json.loads(text))


class Finding(NamedTuple):
    """Something in the code behind a loader that may make two runs differ.

    word: as one would write it; kind: of verify/suspects.py; place: file:line; inside: the
    function's qualified name; where: `dataset` (or collate function, sampler, ...), `library`
    (the same, but installed code) or `loop` (the training script around the loader).
    """

    word: str
    kind: str
    place: str
    inside: str
    where: str


class Batch(NamedTuple):
    """A recorded batch. order: among its process's; epoch: `iter()` calls on its loader so far."""

    order: int
    epoch: int
    sha256: str
    generators: dict[str, str]  # the trainer's, when it got the batch: name -> digest


@dataclass(slots=True)
class LoaderTrail:
    """A loader's record. place, looks: identify it, as in a report; offload: yes, or no and why."""

    place: str
    looks: tuple[object, ...]
    findings: list[Finding]
    offload: str = "-"
    batches: list[Batch] = field(default_factory=list)


@dataclass(slots=True)
class ProcessTrail:
    """A process's record. stopped: `count` or `limit` if it was asked to end; else empty."""

    rank: str
    argv: tuple[str, ...]
    name: str
    began_s: float
    stopped: str = ""
    loaders: list[LoaderTrail] = field(default_factory=list)
    # Of torch's functions: those that look different in this version.
    left: list[str] = field(default_factory=list)

    @property
    def num_batches(self) -> int:
        return sum(len(loader.batches) for loader in self.loaders)


@dataclass(frozen=True, slots=True)
class Side:
    """A run of the command. exit_code: None if `stoker verify` had to end it."""

    exit_code: int | None
    processes: list[ProcessTrail]

    @property
    def num_batches(self) -> int:
        return sum(process.num_batches for process in self.processes)

    @property
    def met_limit(self) -> bool:
        return any(process.stopped == "limit" for process in self.processes) or (
            self.exit_code is None and not any(process.stopped for process in self.processes)
        )


def parse(text: str) -> ProcessTrail | None:
    """Parse the record of a process; None if it was killed before the first line was whole."""
    process: ProcessTrail | None = None
    for line in text.split("\n")[:-1]:  # a torn last line is left out
        entry = json.loads(line)
        kind = entry.pop("kind")
        if kind == "process":
            process = ProcessTrail(**entry | {"argv": tuple(entry["argv"])})
        elif process is not None:
            _add(process, kind, entry)
    return process


def _add(process: ProcessTrail, kind: str, entry: dict[str, Any]) -> None:
    if kind == "loader":
        entry["looks"] = tuple(entry["looks"])
        entry["findings"] = [Finding(*finding) for finding in entry["findings"]]
        process.loaders.append(LoaderTrail(**entry))
    elif kind == "offload":
        process.loaders[entry["loader"]].offload = entry["text"]
    elif kind == "batch":
        batch = Batch(process.num_batches, entry["epoch"], entry["sha256"], entry["generators"])
        process.loaders[entry["loader"]].batches.append(batch)
    elif kind == "stop":
        process.stopped = entry["why"]
