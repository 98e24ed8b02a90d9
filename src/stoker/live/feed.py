"""What a page is told of a run: spans of time that are over, and how it stands now. Frozen: each is bytes once it is made.

A day has 2,880 spans (runs/buckets.py), of which each holds a character a worker: two megabytes for 256 workers.
"""

import collections
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

from stoker.reports.metrics import LoaderRecord, RunRecord, names_of
from stoker.runs.buckets import Buckets, Look, Span
from stoker.runs.crew import AWAY, NOBODY, Crew, busy_of
from stoker.stalls.split import Seen, split_of

MAX_SLOW_SHOWN = 20  # batches, the latest
RECENT_S = 10.0  # what is told of now is of the last ten seconds: a step may be longer than one


class Host(NamedTuple):
    """Says what the machine has used of its cores since it was asked before, as a share of all, and its memory now: of all,
    of the training process, and of the run's other processes."""

    cpu_frac: float = 0.0
    used_nbytes: int = 0
    all_nbytes: int = 0
    trainer_nbytes: int = 0
    others_nbytes: int = 0


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
        self._storage: Any = None
        self._scheme: str | None = None
        self._buckets: Buckets | None = None
        self._began_s = 0.0
        self._since = _Sums(0.0)  # when the open span began
        self._recent: collections.deque[_Sums] = collections.deque()  # the oldest first
        self._end_s = 0.0  # of the last span
        self._cpu: list[float] = []  # of the open span's ticks
        self._ended: str | None = None

    def take(self, tick: Tick, ended: str | None = None) -> None:
        """Take in a tick. ended: how the run ended; then it is the last one."""
        for line in tick.lines:
            self._take_line(line)
        if self._buckets is None:
            return
        done = [span for look in tick.looks for span in self._buckets.add(look)]
        done += self._buckets.until(tick.at_s) if ended is None else self._buckets.rest()
        self._put(tick, done)
        self._ended = ended
        self._tell_now(tick)

    def _put(self, tick: Tick, done: Sequence[Span]) -> None:
        """Append spans that are over. The last of them also says what is looked at once a second, for the time since the one
        before that did."""
        self._cpu.append(tick.host.cpu_frac)
        for span in done:
            told = drawn(span, self._end_s)
            self._end_s = span.at_s + span.long_s
            if span is done[-1]:
                told |= self._looked_at(tick, self._since, self._cpu)
                self._since, self._cpu = _sums(tick), []
            self.spans.append(json.dumps(told).encode())

    def _take_line(self, line: Mapping[str, Any]) -> None:
        kind = line["kind"]
        if kind == "settings":
            self._about = {**line["about"], "pid": line["pid"], "rank": line["rank"]}
            self._begin(line["began_s"])
        elif kind == "began":
            self._begin(line["began_s"])
        elif kind == "loader":
            names = ("number", "place", "dataset", "offloaded", "reasons", "chains")
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
        elif kind == "storage":
            self._storage = line["storage"]
        elif kind == "gradients":
            self._scheme = line["scheme"]

    def _begin(self, began_s: float) -> None:
        self._began_s, self._buckets = began_s, Buckets(began_s)
        self._end_s, self._cpu = 0.0, []
        self._since = _Sums(began_s)
        self._recent.clear()
        self._recent.append(self._since)

    def _looked_at(self, tick: Tick, since: "_Sums", cpu: Sequence[float]) -> dict[str, Any]:
        """Return what is looked at once a second, for the time since."""
        num_looks = tick.crew.num_looks - since.crew.num_looks
        ready = (tick.crew.num_ready - since.crew.num_ready) / num_looks if num_looks > 0 else None
        now = _sums(tick)
        return {
            "crew": busy_of(since.crew, tick.crew),
            "ready": None if ready is None else round(ready, 2),
            "cpu": round(sum(cpu) / max(1, len(cpu)), 3),
            "memory": tick.host.used_nbytes,
            "trainer_memory": tick.host.trainer_nbytes,
            "others_memory": tick.host.others_nbytes,
            **{
                name: new - old
                for (name, new), old in zip(now.nbytes.items(), since.nbytes.values(), strict=True)
            },
        }

    def _tell_now(self, tick: Tick) -> None:
        """Tell how the run stands, and what the last seconds brought."""
        run_s = tick.at_s - self._began_s
        while len(self._recent) > 1 and self._recent[1].at_s <= tick.at_s - RECENT_S:
            self._recent.popleft()
        since = self._recent[0]
        self._recent.append(_sums(tick))
        at_s = max(0.0, since.at_s - self._began_s)
        rows = [_row_between(since.rows.get(loader.number), loader) for loader in tick.loaders]
        last = {
            "at": round(at_s, 2),
            "long": round(run_s - at_s, 2),
            "over": round(run_s - at_s, 2),
            "rows": [row for row in rows if row[1]],
            "kept": self._remembered["used_nbytes"] if self._remembered else 0,
        }
        last |= self._looked_at(tick, since, [tick.host.cpu_frac])
        numbers = {loader.number: loader for loader in tick.loaders}
        run = tick.run
        self.state = {
            "about": self._about,
            "ended": self._ended,
            "run_s": round(run_s, 2),
            "last": last,
            "loaders": [
                told | {"name": name} | _now_of(numbers[told["number"]])
                for told, name in zip(self._loaders, names_of(self._loaders), strict=True)
                if told["number"] in numbers
            ],
            "workers": {
                "started": run.num_started, "lost": run.num_lost,
                "replayed": run.num_replayed, "hedged": run.num_hedged,
            },
            "places": [[p.number, p.slot, p.flags & AWAY] for p in tick.crew.places],
            "gradients": {
                "scheme": self._scheme, "raw_nbytes": run.gradients_raw_nbytes,
                "wire_nbytes": run.gradients_wire_nbytes,
            },
            "host": {"all_nbytes": tick.host.all_nbytes},
            "remembered": self._remembered,
            "fast": self._fast,
            "storage": storage_rows(self._storage),
            "ranks": list(tick.ranks),
            "said": self._said,
            "slow": self._slow,
        }  # fmt: skip
        self.now = json.dumps(self.state).encode()


class _Sums(NamedTuple):
    """Holds what had come until a moment. rows: by loader, see _totals_of."""

    at_s: float
    crew: Crew = NOBODY
    nbytes: Mapping[str, int] = dict.fromkeys(("raw", "wire", "gradients_raw", "gradients_wire"), 0)
    rows: Mapping[int, tuple[float, ...]] = {}


def _sums(tick: Tick) -> _Sums:
    nbytes = {
        "raw": sum(loader.raw_nbytes for loader in tick.loaders),
        "wire": sum(loader.wire_nbytes for loader in tick.loaders),
        "gradients_raw": tick.run.gradients_raw_nbytes,
        "gradients_wire": tick.run.gradients_wire_nbytes,
    }
    return _Sums(
        tick.at_s, tick.crew, nbytes, {each.number: _totals_of(each) for each in tick.loaders}
    )


def storage_rows(told: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    """Return what was read for mounts, a row for this machine and one for all others, where there are any."""
    if told is None:
        return []
    found = []
    for machines, row in (("here", told if told["mounts"] else None), ("others", told["away"])):
        if row:
            names = ("remote_nbytes", "peer_nbytes", "num_requests", "num_retries", "wait_s")
            found.append(
                {"machines": machines, **{name: row[name] for name in names}}
                | {"cache_nbytes": row["memory_nbytes"] + row["disk_nbytes"]}
            )
    return found


def drawn(span: Span, before_s: float) -> dict[str, Any]:
    """Return a span as page.js draws it. before_s: when the one before it ended."""
    rows = [
        _rounded(row.number, row.num_batches, row.num_samples, row.longest_s, split_of(row.wait_s, row.busy_s, row.seen))
        for row in span.rows
    ]  # fmt: skip
    over_s = span.at_s + span.long_s - before_s
    return {"at": span.at_s, "long": span.long_s, "over": round(over_s, 3), "rows": rows}


def _rounded(
    number: int, num_batches: int, num_samples: int, longest_s: float, split: Sequence[float]
) -> list[float]:
    """Return a loader's row, as page.js reads it: numbers first, then the parts of the time in the order of Split."""
    parts = [round(part_s, 5) for part_s in split]
    return [number, num_batches, num_samples, round(longest_s, 5), *parts]


def _totals_of(loader: LoaderRecord) -> tuple[float, ...]:
    return (loader.num_batches, loader.num_samples, loader.wait_s, loader.busy_s, *loader.seen)


def _row_between(before: tuple[float, ...] | None, loader: LoaderRecord) -> list[float]:
    now = _totals_of(loader)
    new = [a - b for a, b in zip(now, before or (0.0,) * len(now), strict=True)]
    split = split_of(new[2], new[3], Seen(*new[4:]))
    return _rounded(loader.number, int(new[0]), int(new[1]), 0.0, split)


def _now_of(loader: LoaderRecord) -> dict[str, Any]:
    split = split_of(loader.wait_s, loader.busy_s, Seen(*_totals_of(loader)[4:]))
    numbers = asdict(loader)
    keys = (
        "num_batches", "num_samples", "num_iters", "wait_s", "busy_s", "raw_nbytes", "wire_nbytes",
        "num_away",
    )  # fmt: skip
    return {key: numbers[key] for key in keys} | {"split": split._asdict()}
