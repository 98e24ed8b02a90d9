"""What a page is told of a run: spans of time that are over, and how it stands now. Frozen: each is bytes once it is made.

A day has 2,880 spans (runs/buckets.py), of which each holds a character a worker: two megabytes for 256 workers.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

from stoker.reports.metrics import LoaderRecord, RunRecord
from stoker.runs.buckets import Buckets, Look, Span
from stoker.runs.crew import AWAY, NOBODY, Crew, busy_of
from stoker.stalls.split import Seen, split_of

MAX_SLOW_SHOWN = 20  # batches, the latest
_ZERO = {"raw": 0, "wire": 0, "gradients_raw": 0, "gradients_wire": 0}


class Host(NamedTuple):
    """Says what the machine has used of its cores since it was asked before, as a share of all, and its memory now."""

    cpu_frac: float = 0.0
    used_nbytes: int = 0
    all_nbytes: int = 0


class Tick(NamedTuple):
    """Holds what is new in a second of a run. lines: of its log; at_s: of clock.now_s."""

    at_s: float
    lines: Sequence[Mapping[str, Any]]
    looks: Sequence[Look]
    run: RunRecord
    loaders: Sequence[LoaderRecord]
    crew: Crew
    host: Host
    ranks: Sequence[Mapping[str, Any]]


class Feed:
    """Adds up ticks. Owner: the report keeper; the page's threads read `spans` and `now`, which are never changed in place
    but by appending."""

    def __init__(self) -> None:
        self.spans: list[bytes] = []
        self.now = b"{}"
        self.state: dict[str, Any] = {}  # as `now` says it
        self.numbers: list[int] = []  # of the loaders so far
        self._about: dict[str, Any] = {}
        self._loaders: list[dict[str, Any]] = []
        self._said: list[dict[str, Any]] = []
        self._slow: list[dict[str, Any]] = []
        self._remembered: Any = None
        self._fast: Any = None
        self._scheme: str | None = None
        self._buckets: Buckets | None = None
        self._began_s = 0.0
        self._since: dict[str, Any] = {"crew": NOBODY, **_ZERO}  # when the open span began
        self._before: dict[str, Any] = {"crew": NOBODY, **_ZERO, "at_s": 0.0, "rows": {}}
        self._cpu: list[float] = []  # of the open span's ticks
        self._ended: str | None = None

    def take(self, tick: Tick) -> None:
        for line in tick.lines:
            self._take_line(line)
        if self._buckets is None:
            return
        done = [span for look in tick.looks for span in self._buckets.add(look)]
        done += self._buckets.until(tick.at_s)
        sums = _sums(tick)
        self._cpu.append(tick.host.cpu_frac)
        for k, span in enumerate(done):
            told = _told_of(span)
            if k == len(done) - 1:  # of what is looked at once a second the last one is told all
                told |= self._more(tick, sums, self._since, self._cpu)
                self._since, self._cpu = {"crew": tick.crew, **sums}, []
            self.spans.append(json.dumps(told).encode())
        self._tell_now(tick, sums)

    def end(self, ended: str, tick: Tick) -> None:
        """Take in the last tick. ended: how the run ended."""
        self._ended = ended
        self.take(tick)
        if self._buckets is not None:
            self.spans += [json.dumps(_told_of(span)).encode() for span in self._buckets.rest()]

    def _take_line(self, line: Mapping[str, Any]) -> None:
        kind = line["kind"]
        if kind == "settings":
            self._about = {**line["about"], "pid": line["pid"], "rank": line["rank"]}
            self._begin(line["began_s"])
        elif kind == "began":
            self._begin(line["began_s"])
        elif kind == "loader":
            names = ("number", "place", "offloaded", "reasons", "chains")
            self._loaders.append({name: line[name] for name in names} | {"notes": []})
            self.numbers.append(line["number"])
        elif kind == "settled":
            changed = {name: line[name] for name in ("reasons", "offloaded")}
            self._loaders[line["number"]] |= changed
        elif kind == "note":
            self._loaders[line["number"]]["notes"].append(line["text"])
        elif kind == "slow":
            told = {name: line[name] for name in ("number", "batch", "why")}
            told["at_s"] = round(line["at_s"], 1)
            self._slow = [*self._slow, told][-MAX_SLOW_SHOWN:]
        elif kind == "said":
            self._said.append({"at_s": round(line["at_s"], 1), "text": line["text"]})
        elif kind == "remembered":
            self._remembered = line["remembered"]
        elif kind == "fast":
            self._fast = line["fast"]
        elif kind == "gradients":
            self._scheme = line["scheme"]

    def _begin(self, began_s: float) -> None:
        self._began_s, self._buckets = began_s, Buckets(began_s)

    def _more(
        self, tick: Tick, sums: Mapping[str, int], since: Mapping[str, Any], cpu: Sequence[float]
    ) -> dict[str, Any]:
        """Return what is looked at once a second, for the time since."""
        crew: Crew = since["crew"]
        num_looks = tick.crew.num_looks - crew.num_looks
        ready = (tick.crew.num_ready - crew.num_ready) / num_looks if num_looks > 0 else None
        return {
            "crew": busy_of(crew, tick.crew),
            "ready": None if ready is None else round(ready, 2),
            "cpu": round(sum(cpu) / max(1, len(cpu)), 3),
            "memory": tick.host.used_nbytes,
            "kept": self._remembered["used_nbytes"] if self._remembered else 0,
            **{name: sums[name] - since[name] for name in _ZERO},
        }

    def _tell_now(self, tick: Tick, sums: Mapping[str, int]) -> None:
        run_s = tick.at_s - self._began_s
        before_s = self._before["at_s"]
        rows = [
            _row_between(self._before["rows"].get(loader.number), loader) for loader in tick.loaders
        ]
        last = {
            "at": round(before_s, 2),
            "long": round(run_s - before_s, 2),
            "rows": [row for row in rows if row[1]],
        }
        last |= self._more(tick, sums, self._before, [tick.host.cpu_frac])
        self._before = {
            "crew": tick.crew, **sums, "at_s": run_s,
            "rows": {loader.number: _totals_of(loader) for loader in tick.loaders},
        }  # fmt: skip
        numbers = {loader.number: loader for loader in tick.loaders}
        run = tick.run
        self.state = {
            "about": self._about,
            "ended": self._ended,
            "run_s": round(run_s, 2),
            "num_spans": len(self.spans),
            "last": last,
            "loaders": [
                told | _now_of(numbers[told["number"]])
                for told in self._loaders if told["number"] in numbers
            ],
            "trainer": {"cpu_s": run.cpu_s, "peak_rss_nbytes": run.peak_rss_nbytes},
            "workers": {
                "slots": run.num_slots, "started": run.num_started, "lost": run.num_lost,
                "replayed": run.num_replayed, "hedged": run.num_hedged,
            },
            "places": [[p.number, p.slot, p.flags & AWAY] for p in tick.crew.places],
            "gradients": {
                "scheme": self._scheme, "raw_nbytes": run.gradients_raw_nbytes,
                "wire_nbytes": run.gradients_wire_nbytes,
            },
            "host": {"used_nbytes": tick.host.used_nbytes, "all_nbytes": tick.host.all_nbytes},
            "remembered": self._remembered,
            "fast": self._fast,
            "ranks": list(tick.ranks),
            "said": self._said,
            "slow": self._slow,
        }  # fmt: skip
        self.now = json.dumps(self.state).encode()


def _sums(tick: Tick) -> dict[str, int]:
    return {
        "raw": sum(loader.raw_nbytes for loader in tick.loaders),
        "wire": sum(loader.wire_nbytes for loader in tick.loaders),
        "gradients_raw": tick.run.gradients_raw_nbytes,
        "gradients_wire": tick.run.gradients_wire_nbytes,
    }


def _told_of(span: Span) -> dict[str, Any]:
    rows = [
        _rounded(row.number, row.num_batches, row.num_samples, row.longest_s, split_of(row.wait_s, row.busy_s, row.seen))
        for row in span.rows
    ]  # fmt: skip
    return {"at": span.at_s, "long": span.long_s, "rows": rows}


def _rounded(
    number: int, num_batches: int, num_samples: int, longest_s: float, split: Sequence[float]
) -> list[float]:
    """Return a loader's row, as page.js reads it: numbers first, then the parts of the time in the order of Split."""
    parts = [round(part_s, 5) for part_s in split]
    return [number, num_batches, num_samples, round(longest_s, 5), *parts]


def _totals_of(loader: LoaderRecord) -> tuple[float, ...]:
    seen = (loader.own_s, loader.copy_s, loader.compute_s, loader.communication_s, loader.other_s)
    return (loader.num_batches, loader.num_samples, loader.wait_s, loader.busy_s, *seen)


def _row_between(before: tuple[float, ...] | None, loader: LoaderRecord) -> list[float]:
    now = _totals_of(loader)
    new = [a - b for a, b in zip(now, before or (0.0,) * len(now), strict=True)]
    split = split_of(new[2], new[3], Seen(*new[4:]))
    return _rounded(loader.number, int(new[0]), int(new[1]), 0.0, split)


def _now_of(loader: LoaderRecord) -> dict[str, Any]:
    split = split_of(loader.wait_s, loader.busy_s, Seen(*_totals_of(loader)[4:]))
    numbers = asdict(loader)
    keys = (
        "num_batches", "num_samples", "num_iters", "wait_s", "first_wait_s", "busy_s", "raw_nbytes", "wire_nbytes",
        "num_away",
    )  # fmt: skip
    return {key: numbers[key] for key in keys} | {"split": split._asdict()}
