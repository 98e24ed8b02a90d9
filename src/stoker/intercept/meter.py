"""Counts, times and hashes the batches that a loader delivers, made by stoker or by torch.

Promise: changes no value and no order, never raises into the loop, asks nothing of a batch that
would run the script's code, and costs a loader that torch keeps at most 3 % of its time.
"""

import atexit
import functools
import itertools
import os
import sys
import weakref
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from stoker import bars, speak, stack
from stoker.clock import now_s, process_cpu_s, thread_cpu_s
from stoker.intercept.patches import left_by_version
from stoker.reports.metrics import KEEPS_NUMBER, ONLY_OWN
from stoker.reports.samples import length_of, num_samples
from stoker.verify import side

if TYPE_CHECKING:
    from stoker.config import Settings
    from stoker.loaders.fallback import Attempt
    from stoker.reports.metrics import LoaderRecord
    from stoker.reports.record import Recorder

PROGRESS_EVERY_S = 1.0
# A look costs 30 us with cold caches, as between two batches; 5 with warm ones. So often it takes
# half a percent. Measured: benchmarks/many_loaders.py, in-process
LOOK_EVERY_S = 30e-6 / 0.005
# So many batches of an offloaded loader are looked at one by one: a short run that is killed misses
# none. They take 2 ms together.
NUM_EXACT = 64

Next = Callable[[Any], Any]  # an iterator's __next__
Way = Callable[[Next, Any, "Meter"], Any]


class Meter:
    """The meter of one iterator; several iterators of a loader share its record.

    `iter()` adds to wait_s; `next()` adds to num_new and wait_s, and calls `look` once look_at_s has come; the one after a look calls `asked` first.
    """

    def __init__(self, recorder: "Recorder", record: "LoaderRecord", settings: "Settings") -> None:
        self.trail: side.Trail | None = None
        self.attempt: Attempt | None = None  # until the first batch of an iterator of ours
        self.keeps_number = ""  # what kind of loader it is, if --chains is not for it
        self.way: Way | None = None  # to the next batch, if not by the iterator alone
        self.num_new = 0  # batches since the last look
        self.wait_s = 0.0  # that the loop waited since then
        self.look_at_s = 0.0
        self.marks_next = False  # on the GPU, that the next batch is asked for
        self.counts_rows = False  # every batch must be looked at for its samples
        self._recorder = recorder
        self._record = record
        self._hashes = settings.hash_batches
        self._progress = not recorder.run.rank and bars.may_draw(settings)
        self._left_s: float | None = None  # when the loop got its batch, at the last look
        self._shown_s = now_s()
        self._seen = (0, 0, 0, 0, 0, 0, 0, 0)
        self._driver_id = 0
        self._drawn: deque[int] = deque()
        self._is_batch = True  # what an index list asks for
        self._lists: deque[Any] | None = None  # in place of _drawn, once torch keeps the iterator
        self._look_s = 0.0  # that the last look took
        self._num_rows = 0  # since the last look, where index lists do not tell
        self._only_waits = False  # next(), and has no thread that pins batches
        record.num_iters += 1
        if not self._hashes:
            _settle_at_exit()
            _skipping.add(self)

    @speak.guarded
    def attach(self, iterator: Any) -> None:
        """Count samples by the index lists of `iterator`."""
        from torch.utils.data import _DatasetKind

        self._drawn = drawn_by(iterator)
        self.counts_rows = iterator._dataset_kind == _DatasetKind.Iterable
        self._only_waits = self._record.chains > 0 and not iterator._pin_memory
        if not self._hashes and self._keeps_lists(iterator) and self._record.num_batches:
            self._left_s = now_s()  # its first batch needs no look: the report has the loader
            self.look_at_s = self._left_s + LOOK_EVERY_S

    @speak.guarded
    def follow(self, loader: Any, looks: tuple[object, ...]) -> None:
        """Write a trail for `stoker verify`, which has every batch hashed."""
        self.trail = side.follow(loader, self._record, looks, left_by_version)

    def begun(self, began_s: float) -> None:
        """Count an iter() that the loop has waited for since then."""
        self.wait_s += now_s() - began_s
        if self._left_s is not None:  # else all until the first look is waiting
            self._left_s = min(self._left_s, began_s)

    def note(self, text: str) -> None:
        self._recorder.note(self._record, text)

    @property
    def place(self) -> str:
        return self._record.place

    def give_up(self, why: str) -> None:
        """Record that the iterator is torch's from here on."""
        self._recorder.give_up(self._record, why)

    @speak.guarded
    def see(self, iterator: Any, batch: Any) -> None:
        """Count a batch of an iterable dataset, whose index list tells only a maximum."""
        at_most = self._drawn.popleft() if self._drawn else 1
        self._num_rows += num_samples(batch, at_most) if iterator._auto_collation else 1

    @speak.guarded
    def look(self, iterator: Any, batch: Any, got_s: float) -> None:
        """Account for this batch and for all that came since the last look."""
        self.look_at_workers(iterator)
        if self._left_s is None:
            self._record.first_wait_s += self.wait_s
            if self.keeps_number and self._record.offloaded:
                self.note(f"{ONLY_OWN}: {self.keeps_number} {KEEPS_NUMBER}")
        else:
            self._record.busy_s += max(0.0, got_s - self._left_s - self.wait_s)
        sha256 = self._sha256(batch) if self._hashes else None
        self._account(sha256)
        if self._progress and got_s - self._shown_s > PROGRESS_EVERY_S:
            self._show(got_s)
        if self.trail is not None and sha256 is not None:
            self.trail.delivered(sha256)
        if self._only_waits and self.way is None:
            self.way = _see_wait  # 2 us at the next batch, beside what this look took
        self._recorder.mark()
        self.marks_next = True
        self._left_s = now_s()
        self._look_s = self._left_s - got_s  # next() was still waited for
        is_exact = self._record.offloaded and self._record.num_batches < NUM_EXACT
        self.look_at_s = 0.0 if self._hashes or is_exact else self._left_s + LOOK_EVERY_S

    def asked(self) -> None:
        """Mark on the GPU that a batch is asked for, once after a look."""
        self.marks_next = False
        self._recorder.mark()

    @speak.guarded
    def failed(self, iterator: Any, asked_s: float, is_end: bool) -> None:
        """Account for a next() that raised, waited for since asked_s. is_end: StopIteration."""
        self.wait_s += now_s() - asked_s
        self.look_at_workers(iterator)
        self.settle()
        drawn = self._drawn if self._lists is None else self._lists
        if is_end:
            drawn.clear()
        elif drawn and not self.counts_rows:
            drawn.popleft()

    def _keeps_lists(self, iterator: Any) -> bool:
        """Note the index lists themselves, where torch keeps the iterator, by a call that runs no
        Python but a frame like torch's own: a third of what is paid for each of its batches.
        Returns whether it does."""
        from torch.utils.data.dataloader import _SingleProcessDataLoaderIter

        kind: type = type(iterator)
        if kind is not _SingleProcessDataLoaderIter or self.counts_rows or self._drawn:
            return False
        lists: deque[Any] = deque()
        noted = itertools.filterfalse(lists.append, iterator._sampler_iter)  # append is None
        torchs = stack.standing_at(kind._next_index, "_sampler_iter")
        iterator._next_index = functools.partial(torchs, next, noted)
        self._is_batch, self._lists = iterator._auto_collation, lists
        return True

    def forget_drawn(self) -> None:
        """Forget what was drawn and not delivered: a persistent iterator begins anew without it."""
        self._drawn.clear()

    @speak.guarded
    def settle(self) -> None:
        """Count what came since the last look: the iterator ends, or the process does."""
        speak.wipe()
        if self.num_new or self.wait_s or self._look_s:
            self._account(None)
        self._recorder.left(self._record)

    def _account(self, sha256: str | None) -> None:
        record = self._record
        record.wait_s += self.wait_s + self._look_s
        record.num_batches += self.num_new
        record.num_samples += self._num_rows
        if self._lists is not None:
            record.num_samples += self._samples_of(self._lists)
        elif not self.counts_rows:
            for _ in range(min(self.num_new, len(self._drawn))):
                record.num_samples += self._drawn.popleft()
        num_new, self.num_new = self.num_new, 0
        self.wait_s = self._look_s = 0.0
        self._num_rows = 0
        self._recorder.delivered(record, sha256, is_hashed=self._hashes and num_new > 0)

    def _samples_of(self, lists: deque[Any]) -> int:
        """Return the number of samples of the new batches, whose index lists come first."""
        if self.num_new == len(lists):  # so it is, unless an iterator has drawn ahead
            taken = list(lists)
            lists.clear()
        else:
            taken = [lists.popleft() for _ in range(min(self.num_new, len(lists)))]
        if not self._is_batch:
            return len(taken)
        if set(map(type, taken)) <= {list}:  # which runs no Python for each of them
            return sum(map(len, taken))
        return sum(length_of(index, is_batched=True) for index in taken)

    def _sha256(self, batch: Any) -> str | None:
        from stoker.reports.digest import batch_sha256

        try:
            return batch_sha256(batch)
        except Exception as error:  # whatever the script's own objects raise
            self.note(f"some batches could not be hashed: {type(error).__name__}: {error}")
            # Not equal to anything: `stoker verify` must not call it so.
            return None if self.trail is None else f"not hashed {os.urandom(8).hex()}"

    def __del__(self, is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        if not is_finalizing():  # else our modules are empty, and all has been counted
            self.settle()  # the loop broke

    @speak.guarded
    def look_at_workers(self, iterator: Any) -> None:
        """Add what the driver's totals grew by since the last look."""
        driver = getattr(iterator, "_driver", None)
        if driver is None:
            return
        if id(driver) != self._driver_id:  # the first look at this iterator's
            self._driver_id = id(driver)
            self._recorder.serve(self._record, weakref.WeakMethod(driver.crew))
        if driver.why_slow:
            number = self._record.num_batches + self.num_new
            self._recorder.slow(self._record, number, driver.why_slow)
            driver.why_slow = ""
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
            self.note(f"{ONLY_OWN}: {state.why_barred}")
        if state.why_not_away:
            self.note(f"kept to this machine: {state.why_not_away}")
        if stats.why_slow_copies:
            self.note(stats.why_slow_copies)
        self._seen = now

    def _show(self, now: float) -> None:
        """Show a progress line, which the next one overwrites; none beside somebody else's bar."""
        self._shown_s = now
        if bars.are_drawn():
            return
        _wipe_at_exit()
        record = self._record
        total_s = record.wait_s + record.busy_s
        share = record.waited_s / total_s if total_s else 0.0
        speak.show(f"stoker: {record.place}: {record.num_batches:,} batches, waited {share:.0%}")


@stack.passed_over
def _see_wait(original: Next, iterator: Any, meter: Meter) -> Any:
    """Return the next batch, and note what CPU time other threads of the process used meanwhile."""
    meter.way = None
    began_s, others_s = now_s(), process_cpu_s() - thread_cpu_s()
    batch = original(iterator)
    run = meter._recorder.run
    run.seen_wait_s += now_s() - began_s
    run.seen_wait_cpu_s += max(0.0, process_cpu_s() - thread_cpu_s() - others_s)
    return batch


_skipping: weakref.WeakSet[Meter] = weakref.WeakSet()


@functools.cache
def _settle_at_exit() -> None:
    """Register an exit handler after the recorder's: it runs before the report is written."""
    atexit.register(settle_all)


@functools.cache
def _wipe_at_exit() -> None:
    atexit.register(speak.wipe)


def settle_all() -> None:
    """Count what came since the last look, of every iterator."""
    for meter in tuple(_skipping):
        meter.settle()


def drawn_by(iterator: Any) -> deque[int]:
    """Return the lengths of the index lists drawn for batches that were not delivered yet."""
    try:  # not by __dict__: that makes all later look-ups slower
        drawn: deque[int] = iterator._stoker_drawn
    except AttributeError:
        drawn = iterator._stoker_drawn = deque()
    return drawn
