"""Follows the logs of a job's other ranks, as far as they lie in the same folder."""

import json
from pathlib import Path
from typing import Any

from stoker.runs.file import about_of
from stoker.runs.folder import logs_in
from stoker.stalls.split import NOTHING, Seen, split_of, summed

NEAR_S = 600.0  # ranks of one job begin so near to each other


class RankReader:
    """Reads what is new in the logs. about: of the rank that shows the page."""

    def __init__(self, folder: Path, about: dict[str, Any]) -> None:
        self._folder, self._about = folder, about
        self._tails: dict[Path, _Tail | None] = {}  # None: of another job

    def read(self) -> list[dict[str, Any]]:
        """Return a row a rank, the first first; none for a run that has no ranks."""
        if self._about.get("world") is None:
            return []
        for file in logs_in(self._folder):
            if (
                file not in self._tails and (about := about_of(file)) is not None
            ):  # else it is only begun
                self._tails[file] = self._tail_of(file, about)
        tails = [tail for tail in self._tails.values() if tail is not None]
        newest = {tail.rank: tail for tail in sorted(tails, key=lambda tail: tail.began_unix_s)}
        return [newest[rank].read() for rank in sorted(newest)]

    def _tail_of(self, file: Path, about: dict[str, Any]) -> "_Tail | None":
        if about["rank"] is None or about.get("world") != self._about["world"]:
            return None
        is_near = abs(about["began_unix_s"] - self._about["began_unix_s"]) < NEAR_S
        return _Tail(file, about) if is_near else None


class _Tail:
    """Adds up one log as it grows."""

    def __init__(self, file: Path, about: dict[str, Any]) -> None:
        self.rank, self.began_unix_s = about["rank"], about["began_unix_s"]
        self._file, self._host = file, about["host"]
        self._at = 0
        self._num_batches = self._num_samples = 0
        self._split = NOTHING
        self._rate = self._end_s = 0.0
        self._ended: str | None = None

    def read(self) -> dict[str, Any]:
        try:
            with self._file.open("rb") as opened:
                opened.seek(self._at)
                data = opened.read()
        except OSError:  # removed
            data = b""
        whole = data[: data.rfind(b"\n") + 1]
        self._at += len(whole)
        for line in whole.splitlines():
            try:
                self._take(json.loads(line))
            except (ValueError, LookupError, TypeError):  # damaged
                continue
        return {
            "rank": self.rank, "host": self._host, "num_batches": self._num_batches,
            "num_samples": self._num_samples, "rate": round(self._rate, 2),
            "split": self._split._asdict(), "ended": self._ended,
        }  # fmt: skip

    def _take(self, line: dict[str, Any]) -> None:
        if line["kind"] == "end":
            self._ended = line["report"]["ended"]
        elif line["kind"] == "span":
            rows = line["rows"]
            self._num_batches += sum(row[1] for row in rows)
            self._num_samples += sum(row[2] for row in rows)
            before_s, self._end_s = self._end_s, line["at_s"] + line["long_s"]
            self._rate = sum(row[2] for row in rows) / max(self._end_s - before_s, line["long_s"])
            splits = [split_of(row[3], row[4], Seen(*row[6:])) for row in rows]
            self._split = summed([self._split, *splits])
