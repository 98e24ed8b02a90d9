"""Declares what a run counts: one record a loader, one for the process. Names end in their unit.

A number's declaration says how it lies in the row of the log, which another process can read if
this one is killed, and its key in the report. What each means: docs/report.md.
Pure: standard library only.
"""

import struct
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from operator import attrgetter
from typing import Any, NamedTuple

from stoker.stalls.split import Seen, lost_s

ONLY_OWN = "only its own workers make its batches"  # begins a note on why
KEEPS_NUMBER = "keeps the script's num_workers"  # ends one, of what --chains is not for
VERSION = 2  # of the report's schema; see docs/report.md


def _count(key: str = "") -> int:
    """Declare a whole number. key: in the report, dots lead inwards; its own name if empty."""
    number: int = field(default=0, metadata={"code": "q", "key": key})
    return number


def _amount(key: str = "") -> float:
    """Declare a number that need not be whole. key: as of _count."""
    number: float = field(default=0.0, metadata={"code": "d", "key": key})
    return number


class _Layout(NamedTuple):
    """Says how a record's numbers lie in its row. keys: in the report, by name; get: all of a record."""

    keys: dict[str, str]
    row: struct.Struct
    get: Callable[[object], tuple[Any, ...]]


_layouts: dict[type, _Layout] = {}


def layout_of(kind: type) -> _Layout:
    """Return the layout of a kind of record, as its fields declare it."""
    if kind not in _layouts:
        found = {each.name: each.metadata for each in fields(kind) if "code" in each.metadata}
        keys = {name: each["key"] or name for name, each in found.items()}
        row = struct.Struct("<" + "".join(each["code"] for each in found.values()))
        _layouts[kind] = _Layout(keys, row, attrgetter(*found))
    return _layouts[kind]


@dataclass(slots=True)
class _Record:
    """Numbers that fit in one row of a file, in the order of their declaration."""

    def row(self) -> bytes:
        layout = layout_of(type(self))
        return layout.row.pack(*layout.get(self))

    def read_row(self, data: bytes) -> None:
        layout = layout_of(type(self))
        for name, number in zip(layout.keys, layout.row.unpack(data), strict=True):
            setattr(self, name, number)

    def _numbers_json(self) -> dict[str, Any]:
        """Return the numbers by their keys, those with dots in objects of their own."""
        found: dict[str, Any] = {}
        for name, path in layout_of(type(self)).keys.items():
            where, _, key = path.rpartition(".")
            (found.setdefault(where, {}) if where else found)[key] = getattr(self, name)
        return found


@dataclass(slots=True)
class LoaderRecord(_Record):
    """A loader's record: where it is iterated, where its batches are made, and what that took."""

    number: int
    place: str
    offloaded: bool
    reasons: list[str]
    chains: int
    num_batches: int = _count()
    num_samples: int = _count()
    num_iters: int = _count()  # iterators made: epochs, unless one lives for several
    wait_s: float = _amount()  # the training loop stood in iter() or next()
    first_wait_s: float = _amount()  # of it, for the first batch of each iterator
    busy_s: float = _amount()  # the training loop had a batch and did something else
    # Of both, by samples of what the training thread did (stalls/split.py, Seen).
    own_s: float = _amount("seen.own_s")
    copy_s: float = _amount("seen.copy_s")
    compute_s: float = _amount("seen.compute_s")
    communication_s: float = _amount("seen.communication_s")
    other_s: float = _amount("seen.other_s")
    hidden_s: float = _amount("seen.hidden_s")
    wire_nbytes: int = _count()
    raw_nbytes: int = _count()
    num_copied: int = _count()  # batches copied because the script holds more than --memory
    num_away: int = _count()  # batches that other machines made
    notes: list[str] = field(default_factory=list)
    digests: list[str | None] = field(default_factory=list)
    dataset: str = ""  # its class, length and batch size, in words

    @property
    def waited_s(self) -> float:
        """How long the loop waited for batches, but for what a GPU computed meanwhile."""
        return lost_s(self.wait_s, self.hidden_s)

    @property
    def seen(self) -> Seen:
        """What the training thread was seen to do in this loader's time."""
        return Seen(
            self.own_s,
            self.copy_s,
            self.compute_s,
            self.communication_s,
            self.other_s,
            self.hidden_s,
        )

    def as_json(self) -> dict[str, Any]:
        return {
            "place": self.place,
            "dataset": self.dataset,
            "offloaded": self.offloaded,
            "reasons": self.reasons,
            "notes": self.notes,
            "chains": self.chains,
            **self._numbers_json(),
            "batches_sha256": self.digests,
        }


DECODED = "decoded files"  # a depth


def names_of(loaders: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return what to call loaders: the line that iterates them; of several of one line their datasets, too, and the second
    of those that are alike in all is #2. loaders: as a report or log has them."""
    places = Counter(loader["place"] for loader in loaders)
    seen: Counter[str] = Counter()
    names = []
    for loader in loaders:
        name, dataset = loader["place"], loader.get("dataset")  # logs of earlier versions have none
        if places[name] > 1 and dataset:
            name += f" ({dataset})"
        seen[name] += 1
        names.append(name if seen[name] == 1 else f"{name} #{seen[name]}")
    return names


@dataclass(frozen=True, slots=True)
class RememberedPlace:
    """What became of one dataset's samples, or of what one function decodes. depth: up to where they
    are remembered; why: it is left alone; num_samples: that the dataset has."""

    place: str
    phase: str
    depth: str
    why: str
    num_samples: int
    num_hits: int  # found where they are kept; those that were made again to check them too
    num_misses: int
    num_stored: int
    num_checked: int
    num_differed: int
    stored_nbytes: int
    saved_s: float  # of workers' time, as all that follow
    learn_s: float = 0.0  # samples under watch, and looks at what they depend on
    prove_s: float = 0.0  # samples that were made again
    write_s: float = 0.0


@dataclass(frozen=True, slots=True)
class RememberedOnDisk:
    """The folder of `--cache-disk`. why: nothing more is written there; empty if nothing is in the
    way; used_nbytes: of all runs."""

    path: str
    budget_nbytes: int
    used_nbytes: int
    why: str


@dataclass(frozen=True, slots=True)
class Remembered:
    """What was remembered of all datasets, and in how much memory; disk: None if none was asked for;
    away_nbytes: on other machines; num_sharing: ranks of this machine, each of which has as much."""

    budget_nbytes: int
    used_nbytes: int
    away_nbytes: int
    places: list[RememberedPlace]
    disk: RememberedOnDisk | None = None
    num_sharing: int = 1

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, told: dict[str, Any]) -> "Remembered":
        places = [RememberedPlace(**place) for place in told["places"]]
        disk = told.get("disk")
        return cls(
            told["budget_nbytes"],
            told["used_nbytes"],
            told["away_nbytes"],
            places,
            None if disk is None else RememberedOnDisk(**disk),
            told["num_sharing"],
        )


@dataclass(slots=True)
class FastPlace:
    """Counts of one faster way. why: it is left alone, since then; num_refused: that were made
    as without stoker after all."""

    place: str
    num_made: int = 0
    num_checked: int = 0
    num_refused: int = 0
    why: str = ""

    def add(self, num_made: int, num_checked: int, num_refused: int, why: str) -> None:
        self.num_made += num_made
        self.num_checked += num_checked
        self.num_refused += num_refused
        self.why = self.why or why


@dataclass(slots=True)
class RunRecord(_Record):
    """The training process's record: its own resource use, and its workers'."""

    wall_s: float = _amount()
    cpu_s: float = _amount("trainer.cpu_s")
    peak_rss_nbytes: int = _count("trainer.peak_rss_nbytes")
    num_cores: int = _count("trainer.cores")  # this rank's share of the machine's
    seen_wait_s: float = _amount("trainer.seen_wait_s")  # of the waits, those that were looked at
    seen_wait_cpu_s: float = _amount("trainer.seen_wait_cpu_s")  # CPU time of other threads in them
    num_started: int = _count("workers.started")
    num_lost: int = _count("workers.lost")
    num_replayed: int = _count("workers.replayed")
    num_hedged: int = _count("workers.hedged")
    num_slots: int = _count("workers.slots")
    # Hours that CPUs of other machines were this process's, all of them together.
    away_hours: float = _amount("workers.away_hours")
    files_sent_nbytes: int = _count(
        "workers.files_sent_nbytes"
    )  # of files that other machines lack
    gradients_wire_nbytes: int = _count("gradients.wire_nbytes")
    gradients_raw_nbytes: int = _count("gradients.raw_nbytes")
    gradients: str | None = None  # how they are compressed
    cluster: str | None = None  # that other machines were asked of
    price_worker: float | None = None  # of one of those CPUs for an hour
    price_trainer: float | None = None  # of this machine for an hour
    remembered: Remembered | None = None  # None: nothing was to be
    fast: list[FastPlace] | None = None  # None: none were to be
    storage: dict[str, Any] | None = None  # what was read for mounts; None: there are none
    rank: int | None = None
    without_stoker: list[int] = field(default_factory=list)  # ranks, as far as rank 0 has seen


def as_json(run: RunRecord, loaders: list[LoaderRecord], ended: str) -> dict[str, Any]:
    """Return the report, as docs/report.md describes it."""
    numbers = run._numbers_json()
    return {
        "version": VERSION,
        "ended": ended,
        "rank": run.rank,
        "ranks_without_stoker": run.without_stoker,
        "cluster": run.cluster,
        "loaders": [loader.as_json() for loader in loaders],
        "cost": {
            "workers": _cost(run.away_hours, run.price_worker),
            "trainer": _cost(run.wall_s / 3600, run.price_trainer),
        },
        **numbers,
        "cache": None if run.remembered is None else run.remembered.as_json(),
        "fast": None if run.fast is None else [asdict(each) for each in run.fast],
        "storage": run.storage,
        "gradients": {"scheme": run.gradients, **numbers["gradients"]},
    }


def _cost(hours: float, price: float | None) -> float | None:
    return None if price is None else hours * price
