"""Defines what a run counts: one record a loader, one for the process. Names end in their unit.

A loader's numbers fit in a row of 64 bytes that another process can read if this one is killed.
Pure: standard library only.
"""

import struct
from dataclasses import dataclass, field
from typing import Any

VERSION = 1  # of the report's schema; see docs/report.md
ROW = struct.Struct(
    "<qqddqqqq"
)  # num_batches, num_samples, wait_s, busy_s, wire, raw, copied, away
RUN_ROW = struct.Struct(
    "<dddqqqqqqqq"
)  # wall_s, cpu_s, away_s, rss, started, lost, replayed, slots, hedged, gradients' wire and raw


@dataclass(slots=True)
class LoaderRecord:
    """A loader's record: where it is iterated, where its batches are made, and what that took."""

    number: int
    place: str
    offloaded: bool
    reasons: list[str]
    chains: int
    num_batches: int = 0
    num_samples: int = 0
    wait_s: float = 0.0  # the training loop waited for batches
    busy_s: float = 0.0  # the training loop had a batch and did something else
    wire_nbytes: int = 0
    raw_nbytes: int = 0
    num_copied: int = 0  # batches copied because the script holds more than --memory
    num_away: int = 0  # batches that other machines made
    notes: list[str] = field(default_factory=list)
    digests: list[str | None] = field(default_factory=list)

    def row(self) -> bytes:
        return ROW.pack(
            self.num_batches, self.num_samples, self.wait_s, self.busy_s,
            self.wire_nbytes, self.raw_nbytes, self.num_copied, self.num_away,
        )  # fmt: skip

    def read_row(self, data: bytes) -> None:
        (
            self.num_batches, self.num_samples, self.wait_s, self.busy_s,
            self.wire_nbytes, self.raw_nbytes, self.num_copied, self.num_away,
        ) = ROW.unpack(data)  # fmt: skip


@dataclass(slots=True)
class RunRecord:
    """The training process's record: its own resource use, and its workers'."""

    wall_s: float = 0.0
    cpu_s: float = 0.0
    peak_rss_nbytes: int = 0
    num_started: int = 0
    num_lost: int = 0
    num_replayed: int = 0
    num_slots: int = 0
    num_hedged: int = 0
    away_s: float = 0.0  # that CPUs of other machines were this process's, all of them together
    gradients_wire_nbytes: int = 0
    gradients_raw_nbytes: int = 0
    gradients: str | None = None  # how they are compressed
    price_worker: float | None = None  # of one of those for an hour
    price_trainer: float | None = None  # of this machine for an hour
    rank: int | None = None
    without_stoker: list[int] = field(default_factory=list)  # ranks, as far as rank 0 has seen

    def row(self) -> bytes:
        return RUN_ROW.pack(
            self.wall_s, self.cpu_s, self.away_s, self.peak_rss_nbytes,
            self.num_started, self.num_lost, self.num_replayed, self.num_slots, self.num_hedged,
            self.gradients_wire_nbytes, self.gradients_raw_nbytes,
        )  # fmt: skip

    def read_row(self, data: bytes) -> None:
        (
            self.wall_s, self.cpu_s, self.away_s, self.peak_rss_nbytes,
            self.num_started, self.num_lost, self.num_replayed, self.num_slots, self.num_hedged,
            self.gradients_wire_nbytes, self.gradients_raw_nbytes,
        ) = RUN_ROW.unpack(data)  # fmt: skip


def as_json(run: RunRecord, loaders: list[LoaderRecord], ended: str) -> dict[str, Any]:
    """Return the report, as docs/report.md describes it."""
    return {
        "version": VERSION,
        "ended": ended,
        "wall_s": run.wall_s,
        "rank": run.rank,
        "ranks_without_stoker": run.without_stoker,
        "loaders": [_loader_json(loader) for loader in loaders],
        "workers": {
            "started": run.num_started,
            "lost": run.num_lost,
            "replayed": run.num_replayed,
            "hedged": run.num_hedged,
            "slots": run.num_slots,
            "away_hours": run.away_s / 3600,
        },
        "cost": {
            "workers": _cost(run.away_s, run.price_worker),
            "trainer": _cost(run.wall_s, run.price_trainer),
        },
        "gradients": {
            "scheme": run.gradients,
            "wire_nbytes": run.gradients_wire_nbytes,
            "raw_nbytes": run.gradients_raw_nbytes,
        },
        "trainer": {"cpu_s": run.cpu_s, "peak_rss_nbytes": run.peak_rss_nbytes},
    }


def _cost(seconds: float, price: float | None) -> float | None:
    return None if price is None else seconds / 3600 * price


def _loader_json(loader: LoaderRecord) -> dict[str, Any]:
    return {
        "place": loader.place,
        "offloaded": loader.offloaded,
        "reasons": loader.reasons,
        "notes": loader.notes,
        "chains": loader.chains,
        "num_batches": loader.num_batches,
        "num_samples": loader.num_samples,
        "wait_s": loader.wait_s,
        "busy_s": loader.busy_s,
        "wire_nbytes": loader.wire_nbytes,
        "raw_nbytes": loader.raw_nbytes,
        "num_copied": loader.num_copied,
        "num_away": loader.num_away,
        "batches_sha256": loader.digests,
        "cache": {"hits": 0, "misses": 0, "audits": 0, "mismatches": 0},
    }
