"""Counts, times and hashes what a loader delivers: ours and torch's alike.

Promise: changes no value and no order, and costs a loader that torch keeps at most 3 % of its time.
"""

import atexit
import functools
import sys
import weakref
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from stoker.clock import now_s
from stoker.proof import side

if TYPE_CHECKING:
    from stoker.config import Settings
    from stoker.report.metrics import LoaderRecord
    from stoker.report.record import Recorder

PROGRESS_EVERY_S = 1.0
# A look at a batch costs this much. Where torch makes a batch in less than two hundred times that,
# a look stands for several batches. Measured: benchmarks/many_loaders.py, in-process
LOOK_S = 30e-6  # with cold caches, as between two batches; 5 with warm ones
LOOK_FRAC = 0.005
MAX_TO_SKIP = 255


class Meter:
    """One iterator's meter; several iterators of a loader share its record."""

    def __init__(self, recorder: "Recorder", record: "LoaderRecord", settings: "Settings") -> None:
        self.trail: side.Trail | None = None
        self._recorder = recorder
        self._record = record
        self._hashes = settings.hash_batches
        self._progress = not settings.quiet and _is_tty()
        self._left_s: float | None = None  # when the loop got its last batch
        self._shown_s = now_s()
        self._seen = (0, 0, 0, 0, 0, 0, 0, 0)
        self.settled()
        self._num_samples = 0  # in the last batch that was looked at
        self._num_to_skip = 0  # batches between two looks
        self.num_left_to_skip = 0
        self._is_listed = False  # in _skipping

    def follow(self, loader: Any, looks: tuple[object, ...]) -> None:
        """Write a trail for `stoker verify`, which has every batch hashed."""
        self.trail = side.follow(loader, self._record, looks)

    def settled(self) -> None:
        """Look at every batch, but of loaders that torch keeps."""
        self._may_skip = not self._record.offloaded and not self._hashes

    def note(self, text: str) -> None:
        self._recorder.note(self._record, text)

    def delivered(self, iterator: Any, batch: Any, asked_s: float, got_s: float) -> None:
        record = self._record
        self._num_samples = num_samples(batch, iterator._auto_collation)
        record.wait_s += got_s - asked_s
        if self._left_s is not None:
            between_s = asked_s - self._left_s  # the loop's work, and the waits that were skipped
            waited_s = min(self._num_to_skip * (got_s - asked_s), between_s)
            record.wait_s += waited_s
            record.busy_s += between_s - waited_s
        self._count(1 + self._num_to_skip)
        if self._may_skip and self._left_s is not None:
            self._choose_skips((got_s - self._left_s) / (1 + self._num_to_skip))
        sha256 = None
        if self._hashes:
            from stoker.report.digest import batch_sha256

            sha256 = batch_sha256(batch)
        self._recorder.delivered(record, sha256)
        if self._progress and got_s - self._shown_s > PROGRESS_EVERY_S:
            self._show(got_s)
        if self.trail is not None and sha256 is not None:
            self.trail.delivered(sha256)
        self._left_s = now_s()

    def _choose_skips(self, batch_s: float) -> None:
        num_to_skip = LOOK_S / (LOOK_FRAC * max(batch_s, LOOK_S))  # no batch is that fast
        self._num_to_skip = min(int(num_to_skip), MAX_TO_SKIP)
        self.num_left_to_skip = self._num_to_skip
        if self._num_to_skip and not self._is_listed:
            self._is_listed = True
            _settle_at_exit()
            _skipping.add(self)

    def _count(self, num_batches: int) -> None:
        """Batches that were delivered; each like the last one that was looked at."""
        self._record.num_batches += num_batches
        self._record.num_samples += num_batches * self._num_samples

    def settle(self) -> None:
        """Count what was skipped since the last look: the iterator ends, or the process does."""
        num_skipped = self._num_to_skip - self.num_left_to_skip
        self._num_to_skip = self.num_left_to_skip = 0
        if num_skipped:
            self._count(num_skipped)
            self._recorder.delivered(self._record, None)

    def __del__(self) -> None:
        self.settle()  # the loop broke

    def look_at_workers(self, iterator: Any) -> None:
        """Add what the driver's totals grew by since the last look."""
        driver = getattr(iterator, "_driver", None)
        if driver is None:
            return
        stats, state, run = driver.stats, driver.state, self._recorder.run
        now = (
            stats.wire_nbytes, stats.raw_nbytes, stats.num_copied, stats.num_away,
            stats.num_started, state.num_lost, state.num_replayed, state.num_hedged,
        )  # fmt: skip
        if now == self._seen:
            return
        wire, raw, copied, away, started, lost, replayed, hedged = (
            new - old for new, old in zip(now, self._seen, strict=True)
        )
        self._record.wire_nbytes += wire
        self._record.raw_nbytes += raw
        self._record.num_copied += copied
        self._record.num_away += away
        run.num_started += started
        run.num_lost += lost
        run.num_replayed += replayed
        run.num_hedged += hedged
        if state.why_barred:
            self.note(f"kept to its chains: {state.why_barred}")
        if state.why_not_away:
            self.note(f"kept to this machine: {state.why_not_away}")
        self._seen = now

    def _show(self, now: float) -> None:
        """One line that the next one overwrites; none while tqdm draws there."""
        self._shown_s = now
        tqdm = sys.modules.get("tqdm")
        if tqdm is not None and list(getattr(tqdm.tqdm, "_instances", [])):
            return
        record = self._record
        total_s = record.wait_s + record.busy_s
        share = record.wait_s / total_s if total_s else 0.0
        text = f"stoker: {record.place}: {record.num_batches:,} batches, waited {share:.0%}"
        print(f"\r\x1b[K{text}\r", end="", file=sys.stderr, flush=True)


_skipping: weakref.WeakSet[Meter] = weakref.WeakSet()


@functools.cache
def _settle_at_exit() -> None:
    """Registered after the recorder's own handler, and so run before it writes the report."""
    atexit.register(_settle_all)


def _settle_all() -> None:
    for meter in tuple(_skipping):
        meter.settle()


def num_samples(batch: Any, is_batched: bool) -> int:
    """Samples in a batch: length of the first tensor or list found in it."""
    if not is_batched:
        return 1
    for _ in range(8):  # nested no deeper than this
        shape = getattr(batch, "shape", None)
        if shape is not None:
            return int(shape[0]) if len(shape) else 1
        if isinstance(batch, Mapping) and batch:  # a BatchEncoding is no dict
            batch = next(iter(batch.values()))
        elif isinstance(batch, (list, tuple)) and batch:
            if not isinstance(batch[0], (list, tuple, dict)) and not hasattr(batch[0], "shape"):
                return len(batch)
            batch = batch[0]
        else:
            break
    return 1


def _is_tty() -> bool:
    return sys.stderr is not None and sys.stderr.isatty()
