"""The run log: holds what the report is made from, in a file without a name.

    done flag | run row | loader rows ... | looks, in a ring | workers | JSON lines: settings, loaders, notes, digests

Promise: what was written before a kill -9 can be read after it, by any process that holds the file.
Rows are overwritten in place, lines are appended. Pure but for the file itself.
"""

import contextlib
import fcntl
import functools
import json
import mmap
import os
import struct
import tempfile
from collections.abc import Sequence
from typing import Any

from stoker import descriptors, speak
from stoker.reports.metrics import FastPlace, LoaderRecord, Remembered, RunRecord, layout_of
from stoker.runs import crew
from stoker.runs.buckets import Look
from stoker.stalls.split import Seen

MAX_LOADERS = 1000
_RUN_AT = 64
_ROWS_AT = 192
_LOOKS_AT = 128 * 1024  # their number, and behind it the ring
_LOOK = struct.Struct("<dqqqdd6d")
_COUNT = struct.Struct("<q")
# A loader is looked at every 6 ms at most (intercept/meter.py), the ring every second.
NUM_LOOKS = 4096
_RING_AT = _LOOKS_AT + _COUNT.size
_CREW_AT = _RING_AT + NUM_LOOKS * _LOOK.size
_LINES_AT = 576 * 1024
_LOADER_NBYTES, _RUN_NBYTES = layout_of(LoaderRecord).row.size, layout_of(RunRecord).row.size
assert _CREW_AT + crew.NBYTES <= _LINES_AT
assert _ROWS_AT + MAX_LOADERS * _LOADER_NBYTES <= _LOOKS_AT and _RUN_NBYTES <= _ROWS_AT - _RUN_AT


class RunLog:
    """A run log, for its writer and its reader. fd: an existing one; None makes a new one."""

    def __init__(self, fd: int | None = None) -> None:
        if fd is None:
            fd = _nameless_file()
            speak.without_signals(functools.partial(os.ftruncate, fd, _LINES_AT))
            # Lines of several threads do not lie over each other.
            fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) | os.O_APPEND)
        self.fd = fd
        self._is = descriptors.of(fd)
        self._num_looks = 0
        self._read_at = _LINES_AT
        self._map = mmap.mmap(fd, _LINES_AT)

    def mark_done(self) -> None:
        """Note that the report has been written: the report keeper need not."""
        self._map[0] = 1

    def close(self) -> None:
        self._map.close()
        descriptors.close(self.fd, self._is)

    @property
    def is_done(self) -> bool:
        return self._map[0] == 1

    def put_run(self, run: RunRecord) -> None:
        self._map[_RUN_AT : _RUN_AT + _RUN_NBYTES] = run.row()

    def put_loader(self, loader: LoaderRecord) -> None:
        start = _ROWS_AT + loader.number * _LOADER_NBYTES
        self._map[start : start + _LOADER_NBYTES] = loader.row()

    def put_look(self, at_s: float, loader: LoaderRecord) -> None:
        """Note what a loader's record says at this moment, in place of the oldest look."""
        start = _RING_AT + self._num_looks % NUM_LOOKS * _LOOK.size
        _LOOK.pack_into(
            self._map, start, at_s, loader.number,
            loader.num_batches, loader.num_samples, loader.wait_s, loader.busy_s,
            *loader.seen,
        )  # fmt: skip
        self._num_looks += 1
        _COUNT.pack_into(self._map, _LOOKS_AT, self._num_looks)

    def new_looks(self) -> list[Look]:
        """Return the looks since the last call that are still there; for one reader in another process."""
        (num,) = _COUNT.unpack_from(self._map, _LOOKS_AT)
        if num == self._num_looks:
            return []
        ring = self._map[_RING_AT : _RING_AT + NUM_LOOKS * _LOOK.size]
        # What is written over just now may be torn: the writer may have begun with the next one.
        (after,) = _COUNT.unpack_from(self._map, _LOOKS_AT)
        first = max(self._num_looks, after + 1 - NUM_LOOKS)
        self._num_looks = num
        rows = (_LOOK.unpack_from(ring, k % NUM_LOOKS * _LOOK.size) for k in range(first, num))
        return [Look(*row[:6])._replace(seen=Seen(*row[6:])) for row in rows]

    def put_crew(self, looks: crew.Looks) -> None:
        """Note what workers were seen to be at."""
        row = looks.row()
        self._map[_CREW_AT : _CREW_AT + len(row)] = row

    def crew(self) -> crew.Crew:
        return crew.read_row(self._map[_CREW_AT : _CREW_AT + crew.NBYTES])

    def rows(self, numbers: Sequence[int]) -> tuple[RunRecord, list[LoaderRecord]]:
        """Return the numbers of the process, and of loaders; of neither what is told in lines."""
        run = RunRecord()
        run.read_row(self._map[_RUN_AT : _RUN_AT + _RUN_NBYTES])
        loaders = [LoaderRecord(number, "", True, [], 0) for number in numbers]
        for loader in loaders:
            self._read_loader(loader)
        return run, loaders

    def append(self, kind: str, **values: Any) -> None:
        """Append a JSON line. Raises OSError if a limit on files forbids it."""
        if not descriptors.is_still(self.fd, self._is):
            return  # the script closed it: the report of a killed run ends here
        line = json.dumps({"kind": kind, **values}).encode() + b"\n"
        speak.without_signals(functools.partial(os.write, self.fd, line))

    def read(self) -> tuple[dict[str, Any], RunRecord, list[LoaderRecord]]:
        """Return the settings, the process and its loaders, as far as they were written."""
        settings: dict[str, Any] = {}
        loaders: list[LoaderRecord] = []
        without_stoker: list[int] = []
        scheme: str | None = None
        remembered: Remembered | None = None
        fast: list[FastPlace] | None = None
        storage: dict[str, Any] | None = None
        for entry in self._lines_from(_LINES_AT)[0]:
            kind = entry.pop("kind")
            if kind == "settings":
                settings = entry
            elif kind == "loader":
                loaders.append(LoaderRecord(**entry))
            elif kind == "settled":
                loader = loaders[entry["number"]]
                loader.reasons, loader.offloaded = entry["reasons"], entry["offloaded"]
            elif kind == "began":
                settings["began_s"] = entry["began_s"]
            elif kind == "ended":
                settings["ended"] = entry["how"]
            elif kind == "ranks":
                without_stoker = entry["without_stoker"]
            elif kind == "gradients":
                scheme = entry["scheme"]
            elif kind == "remembered":
                remembered = Remembered.from_json(entry["remembered"])
            elif kind == "storage":
                storage = entry["storage"]
            elif kind == "fast":
                fast = [FastPlace(**each) for each in entry["fast"]]
            elif kind == "digest":
                loaders[entry["number"]].digests.append(entry["sha256"])
            elif kind == "note":
                loaders[entry["number"]].notes.append(entry["text"])
        run = RunRecord()
        run.read_row(self._map[_RUN_AT : _RUN_AT + _RUN_NBYTES])
        run.rank, run.without_stoker = settings.get("rank"), without_stoker
        run.gradients, run.remembered, run.fast = scheme, remembered, fast
        run.storage = storage
        run.cluster = settings.get("cluster")
        run.price_worker = settings.get("price_worker")
        run.price_trainer = settings.get("price_trainer")
        for loader in loaders:
            self._read_loader(loader)
        return settings, run, loaders

    def _read_loader(self, loader: LoaderRecord) -> None:
        start = _ROWS_AT + loader.number * _LOADER_NBYTES
        loader.read_row(self._map[start : start + _LOADER_NBYTES])

    def new_lines(self) -> list[dict[str, Any]]:
        """Return the lines since the last call; for one reader in another process."""
        lines, self._read_at = self._lines_from(self._read_at)
        return lines

    def _lines_from(self, at: int) -> tuple[list[dict[str, Any]], int]:
        """Return the lines from a place on, and where they end; a torn last line is left out."""
        data = os.pread(self.fd, os.fstat(self.fd).st_size - at, at)
        whole = data[: data.rfind(b"\n") + 1]
        found = []
        for line in whole.splitlines():
            with contextlib.suppress(ValueError):  # a limit on files cut it short
                found.append(json.loads(line))
        return found, at + len(whole)


def _nameless_file() -> int:
    try:
        return os.memfd_create("stoker-run-log")
    except OSError:
        with tempfile.TemporaryFile(prefix="stoker-run-log-") as file:
            return os.dup(file.fileno())
