"""A run's log in the state folder: JSON lines, appended while the run lasts.

    run: command, folder, host, versions, settings | loader ... | span ... | end: report, step times

Promise: what was appended can be read whatever ends the run or its keeper; a line that was cut short is left out.
Problems with the disk end the log, and are nobody else's.
"""

import contextlib
import fcntl
import json
import os
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from stoker.reports.metrics import names_of
from stoker.runs.buckets import Buckets, Look, Row, Slow, Span, Why
from stoker.runs.folder import is_written, prune
from stoker.stalls.split import Seen, Split, lost_s, split_of, summed

VERSION = 1
MAX_SAME_NAME = 100  # runs of one process that begin in one second


class Writer:
    """Writes a log. Owner: the report keeper. Raises OSError if there is no room for one."""

    def __init__(self, folder: Path, about: dict[str, Any]) -> None:
        """about: what the first line holds; began_s: of clock.now_s, began_unix_s: of the world's clock."""
        folder.mkdir(parents=True, exist_ok=True)
        prune(folder)
        began = f"{datetime.fromtimestamp(about['began_unix_s'], UTC):%Y%m%d-%H%M%S}"
        rank = "" if about["rank"] is None else f"-rank{about['rank']}"
        self.file, self._fd = _new_file(folder, f"{began}-{about['pid']}{rank}")
        fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)  # until this process ends
        self._buckets = Buckets(about["began_s"])
        self._append("run", version=VERSION, **about)

    def take(self, loaders: list[dict[str, Any]], looks: list[Look], now_s: float) -> None:
        """Append what is new. loaders: that were first iterated since the last call."""
        for loader in loaders:
            self._append("loader", **{k: v for k, v in loader.items() if k != "kind"})
        done = [span for look in looks for span in self._buckets.add(look)]
        self._put([*done, *self._buckets.until(now_s)])

    def end(
        self, report: dict[str, Any], whys: Sequence[Why] = (), memory: tuple[int, int] = (0, 0)
    ) -> None:
        """Append what the run came to; without the digests of its batches, of which there may be millions.

        memory: bytes of workers and what they start: at the first look, and the most."""
        self._put(self._buckets.rest())
        loaders = [{**loader, "batches_sha256": []} for loader in report["loaders"]]
        report = report | {"loaders": loaders}
        histogram = sorted(self._buckets.histogram.items())
        slowest = self._buckets.slowest(whys)
        self._append("end", report=report, steps=histogram, slowest=slowest, memory=memory)

    def close(self) -> None:
        os.close(self._fd)

    def _put(self, spans: list[Span]) -> None:
        for span in spans:
            rows = [[round(value, 6) for value in (*row[:-1], *row.seen)] for row in span.rows]
            self._append("span", at_s=span.at_s, long_s=span.long_s, rows=rows)

    def _append(self, kind: str, **values: Any) -> None:
        os.write(self._fd, json.dumps({"kind": kind, **values}).encode() + b"\n")


def _new_file(folder: Path, name: str) -> tuple[Path, int]:
    """Return a file that was not there, and its descriptor: a notebook's process has several runs."""
    flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
    for number in range(2, MAX_SAME_NAME + 1):
        with contextlib.suppress(FileExistsError):
            file = folder / f"{name}.jsonl"
            return file, os.open(file, flags, 0o600)
        name = f"{name.partition('.')[0]}.{number}"
    raise FileExistsError(f"{name}.jsonl")


class Totals(NamedTuple):
    """Says what a run came to. wait_s: but for what a GPU computed meanwhile; rate: samples a second once the first batch of
    each loader was there."""

    wall_s: float
    wait_s: float
    num_batches: int
    num_samples: int
    rate: float


class Run(NamedTuple):
    """Holds what a log says. report: None while the run lasts, or if the machine went down with it; memory: bytes of
    workers and what they start, at the first look, and the most."""

    file: Path
    about: dict[str, Any]
    loaders: list[dict[str, Any]]
    spans: list[Span]
    report: dict[str, Any] | None
    steps: list[tuple[int, int]]
    slowest: list[Slow]
    lasts: bool
    memory: tuple[int, int] = (0, 0)

    @property
    def name(self) -> str:
        return self.file.stem

    @property
    def state(self) -> str:
        """How it ended, or that it has not."""
        ended: str = self.report["ended"] if self.report else "lost"
        return "running" if self.lasts else ended

    @property
    def names(self) -> dict[int, str]:
        """What its loaders are called, by their numbers."""
        numbers = [loader["number"] for loader in self.loaders]
        return dict(zip(numbers, names_of(self.loaders), strict=True))

    def split(self) -> Split:
        """Return where the time of its steps went, all loaders together."""
        rows = [row for span in self.spans for row in span.rows]
        return summed(split_of(row.wait_s, row.busy_s, row.seen) for row in rows)

    def totals(self) -> Totals:
        """Return what it came to; of a run that has not ended as far as its log goes."""
        rows = [row for span in self.spans for row in span.rows]
        num_samples = sum(row.num_samples for row in rows)
        wait_s, busy_s = sum(row.wait_s for row in rows), sum(row.busy_s for row in rows)
        loaders = self.report["loaders"] if self.report else ()
        steady_s = wait_s + busy_s - sum(loader["first_wait_s"] for loader in loaders)
        end_s = self.spans[-1].at_s + self.spans[-1].long_s if self.spans else 0.0
        return Totals(
            self.report["wall_s"] if self.report else end_s,
            sum(lost_s(row.wait_s, row.seen.hidden_s) for row in rows),
            sum(row.num_batches for row in rows),
            num_samples,
            num_samples / steady_s if steady_s > 0 else 0.0,
        )


def about_of(file: Path) -> dict[str, Any] | None:
    """Return what the first line of a log says of its run; None if the file is none of ours, or cannot be read."""
    with contextlib.suppress(OSError, ValueError, TypeError, LookupError, AttributeError):
        with file.open("rb") as lines:
            entry: dict[str, Any] = json.loads(lines.readline())
        if entry.pop("kind") == "run" and entry["version"] == VERSION:
            return entry
    return None


def _slow_of(told: list[Any]) -> Slow:
    """Return a slow step; logs of earlier versions tell less of it."""
    more = dict(zip(("num", "why"), told[6:], strict=False))
    return Slow(*told[:5])._replace(seen=Seen(*told[5]), **more)


def read(file: Path) -> Run | None:
    """Return a run; None if the file is none of ours. Raises OSError."""
    about: dict[str, Any] = {}
    loaders: list[dict[str, Any]] = []
    spans: list[Span] = []
    report, steps, slowest, memory = None, [], [], (0, 0)
    lasts = is_written(file)
    for line in file.read_bytes().split(b"\n"):
        with contextlib.suppress(
            ValueError, TypeError, LookupError, AttributeError
        ):  # cut short, damaged
            entry = json.loads(line)
            kind = entry.pop("kind")
            if kind == "run" and entry["version"] == VERSION:
                about = entry
            elif kind == "loader":
                loaders.append(entry)
            elif kind == "span":
                rows = [Row(*row[:6])._replace(seen=Seen(*row[6:])) for row in entry["rows"]]
                spans.append(Span(entry["at_s"], entry["long_s"], rows))
            elif kind == "end":
                steps = [(bin_, num) for bin_, num in entry["steps"]]
                slowest = [_slow_of(each) for each in entry["slowest"]]
                report = entry["report"]
                memory = tuple(entry.get("memory", memory))
    if not about:
        return None
    return Run(file, about, loaders, spans, report, steps, slowest, lasts, memory)
