"""Holds what an examination has found, as the script's processes write it and the command reads it. Pure."""

from dataclasses import asdict, dataclass, field
from typing import Any

from stoker.reports.metrics import FastPlace
from stoker.stalls.split import Split

UNTRIED = "untried"


@dataclass(frozen=True, slots=True)
class Steps:
    """Sums up some steps of the training loop. cpu_s: of the training process, all threads; split: of wall_s."""

    num: int
    num_samples: int
    wall_s: float
    wait_s: float
    cpu_s: float
    split: Split

    @property
    def rate(self) -> float:
        """Samples a second."""
        return self.num_samples / self.wall_s if self.wall_s else 0.0


@dataclass(frozen=True, slots=True)
class Costs:
    """Says what samples cost one process, for one sample. cpu_s: of sample_s; functions: their names and seconds, the
    dearest first; coded_frac: of nbytes, what the codec sends other machines, 0.0: not known; why: they are not known, else
    empty."""

    sample_s: float = 0.0
    cpu_s: float = 0.0
    nbytes: int = 0
    functions: list[tuple[str, float]] = field(default_factory=list)
    coded_frac: float = 0.0
    why: str = ""


@dataclass(frozen=True, slots=True)
class Kept:
    """Says what became of the memory of work for some samples. nbytes: of a sample; budget_nbytes: for all, by
    default; why: it is left alone, or was not tried (phase UNTRIED), else empty; rate: of batches once samples are remembered, while nothing is trained;
    start_s: as of a Trial, then."""

    place: str
    phase: str
    depth: str
    why: str
    nbytes: float
    budget_nbytes: int
    rate: float = 0.0
    start_s: float = 0.0

    @property
    def serves(self) -> bool:
        return self.phase == "serving"


@dataclass(frozen=True, slots=True)
class Trial:
    """Says how fast stoker makes batches of the script's loader, while nothing is trained.

    flags: of stoker run; num_workers: that it took, 0 for processes beside a loader without workers; start_s: from an
    epoch's beginning to its first batch; why: it is left
    to torch, or (not is_left) could not be tried, else empty; fast: what was made in faster ways.
    """

    name: str
    flags: str
    num_workers: int = 0
    rate: float = 0.0
    why: str = ""
    is_left: bool = True
    fast: list[FastPlace] = field(default_factory=list)
    start_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Setup:
    """Says how the script has set up what is examined."""

    place: str
    batch_size: int
    num_workers: int
    num_samples: int  # that the dataset has; 0 if it does not say
    pin_memory: bool
    persistent_workers: bool
    context: str  # how workers are started: fork, spawn, forkserver
    is_iterable: bool
    cores: int
    num_threads: int  # of torch, in the training process
    has_device: bool
    world_size: int
    prefetch_factor: int  # batches that each worker is asked for beforehand; 0 without workers
    image_threads: int = 0  # that OpenCV takes in each worker; 0: it is not there
    is_batched: bool = True  # by the loader
    pickled_nbytes: int = 0  # of the dataset, where workers do not inherit it
    listed_nbytes: int = 0  # of plain objects in its long lists, which each worker comes to copy
    are_shared: bool = False  # those, under stoker


@dataclass(frozen=True, slots=True)
class Facts:
    """All that is known of one script. why: what is missing, if the examination did not come to its end."""

    setup: Setup
    first_wait_s: float  # mean wait for the first batch of an epoch
    plain: Steps
    free: Steps | None  # with batches that cost nothing
    costs: Costs | None
    trials: list[Trial]
    kept: Kept | None = None  # of the fastest trial's loader, made smaller
    why: str = ""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, told: dict[str, Any]) -> "Facts":
        trials = [
            Trial(**each | {"fast": [FastPlace(**way) for way in each["fast"]]})
            for each in told["trials"]
        ]
        costs = told["costs"] and Costs(
            **told["costs"] | {"functions": [(name, s) for name, s in told["costs"]["functions"]]}
        )
        return cls(
            **told
            | {
                "setup": Setup(**told["setup"]),
                "plain": _steps(told["plain"]),
                "free": told["free"] and _steps(told["free"]),
                "costs": costs,
                "trials": trials,
                "kept": told["kept"] and Kept(**told["kept"]),
            }
        )


def _steps(told: dict[str, Any]) -> Steps:
    split = told["split"]
    return Steps(**told | {"split": Split(**split) if isinstance(split, dict) else Split(*split)})
