"""Makes a `num_workers=0` loader's batches ahead in other processes, if the script cannot tell.

    FIRST   two batches are made here, as by torch, and tell whether there is anything to gain
            (first.py)
    LOOK    the next is made here too, between two fingerprints of everything that it may depend on;
            an epoch after one that others made begins with this, while processes make the same
    AHEAD   processes make the batches; a fingerprint is taken before each is handed out
    HERE    what was drawn for them is made here, and then this is torch's own iterator

Batches that draw from the three global generators are made in one process, each from where the
one before left them: a guess, which holds if the training loop draws nothing in between. It is
checked before the batch is handed out; a batch of a wrong guess is thrown away and made here.

Promise: batches, generators and errors are those of `_SingleProcessDataLoaderIter`
(torch/utils/data/dataloader.py, 2.13). Owner: the thread that iterates.
"""

import itertools
import multiprocessing
import threading
from dataclasses import dataclass, replace
from multiprocessing import process
from typing import Any

import torch
from torch.utils.data import _utils

from stoker import at_fork, orphans
from stoker.clock import Deadline, now_s, thread_cpu_s
from stoker.fingerprint.fingerprint import Unwatchable
from stoker.fingerprint.written import written_pages
from stoker.loaders.at_exit import LEAVE_S, close_at_exit, forget
from stoker.loaders.driver import TIMED_OUT, Died, Driver, Failed
from stoker.loaders.in_process.ahead import Ahead
from stoker.loaders.in_process.evidence import TOO_LITTLE, Evidence, Usual
from stoker.loaders.in_process.first import Decision, FirstBatches
from stoker.loaders.in_process.stand_in import StandIn, watch_all
from stoker.local.sizing import why_no_second_copy
from stoker.scheduler.tasks.plan import may_run_ahead
from stoker.worker.job import Job
from stoker.worker.seeding import restore_generators, save_generators

# The loop is given its own batch if the others take so much longer than it would.
PATIENCE_FACTOR, PATIENCE_S = 10.0, 5.0
# One batch in so many is made here as well, and compared: more often where torch has several
# threads here, for a sum over many numbers may depend on theirs.
AUDIT_EVERY, AUDIT_EVERY_THREADED = 64, 16
DIFFERENT = "other processes make something else of the same samples"
# The first look registers large blocks with the kernel, 30 ms a GB, once; later ones do not.
FIRST_LOOK_S = 0.05
# While processes live that were forked, memory that the loop writes to is there twice.
LOOK_AT_MEMORY_EVERY_S = 0.5
# So many wrong guesses, and one more for every so many right ones, are forgiven.
MAX_WRONG, RIGHT_PER_WRONG = 2, 16


@dataclass(frozen=True, slots=True)
class _Look:
    """A fingerprint. took_s: CPU time of this thread; seen: its bytes; why_not: why none, or ""."""

    took_s: float
    seen: bytes
    why_not: str


class InProcessIterator(FirstBatches):
    """Iterates over a `num_workers=0` loader whose batches others may make."""

    def begin(self) -> None:
        """Set up in place of __init__: a FirstBatches has become one of these."""
        self._wish = self._options.find_wish()
        self._job = Job(
            dataset_kind=self._dataset_kind,
            dataset=self._dataset,
            auto_collation=self._auto_collation,
            collate_fn=self._collate_fn,
            drop_last=self._drop_last,
            base_seed=0,
            worker_init_fn=None,
            num_chains=0,
            wish=self._wish and self._wish.away,
            make_worker=StandIn,
        )
        self.owner_thread = threading.get_ident()
        self._driver: Driver | None = None
        self._pages = written_pages()
        usual = self._options.usual
        self._step = InProcessIterator._look
        if usual:
            self._fetch_s, self._generators = usual.fetch_s, b""
        self._fingerprint = b""
        self._draws = usual is not None and usual.samples_draw
        self._usual = usual or Usual(0.0, 0.0, False)
        self._digest = ""  # of the batch that the processes make as well, at first
        self._num_right = self._num_wrong = 0
        self._memory_seen_s = 0.0
        self._audit_every = AUDIT_EVERY if torch.get_num_threads() == 1 else AUDIT_EVERY_THREADED

    # -- torch's own protocol ----------------------------------------------------------------

    def _next_index(self) -> Any:
        if self._drawn:
            return self._drawn.popleft()
        return super()._next_index()  # type: ignore[no-untyped-call]

    def __del__(self) -> None:
        try:
            if "_driver" in self.__dict__ and _utils is not None:
                self._close(0.0)  # nobody wants what they are at
        except Exception:  # see StreamIterator's
            return

    # -- before: made here, with a look ------------------------------------------------------

    def _look(self) -> Any:
        """Make one batch here between two fingerprints, and decide who makes the others.

        Processes begin only then, in later epochs too: beside them this batch takes seven times as long on
        two cores, as torch's threads wait for each other at each operation.
        """
        usual = self._options.usual
        loop_draws = usual is None and save_generators() != self._generators
        self._step_s = usual.step_s if usual else self._step_s
        index = self._next_index()
        before = save_generators()
        at_most_s = max(self._fetch_s, FIRST_LOOK_S)
        look = again = self._watched(Deadline(at_most_s, thread_cpu_s))
        began_s = now_s()
        batch = self._dataset_fetcher.fetch(index)
        self._fetch_s = now_s() - began_s
        self._generators = save_generators()
        self._draws = self._generators != before
        if not look.why_not:
            again = self._watched(Deadline(None))
        self._usual = usual or Usual(self._fetch_s, self._step_s, self._draws)
        self._fingerprint = look.seen
        why = again.why_not or self._evidence(look, again, loop_draws).why_here()
        why = why or self._surprise(batch)
        if not why:
            why = self._begin(index, before, self._usual.num_workers(self._options.num_slots))
        if why:
            self._leave(why)
        else:
            self._step = InProcessIterator._after_audit
        return self._pinned(batch)

    def _evidence(self, look: _Look, again: _Look, loop_draws: bool) -> Evidence:
        capacity = 0 if self._draws else self._options.capacity
        return Evidence(
            fetch_s=self._fetch_s,
            step_s=self._step_s,
            look_s=min(look.took_s, again.took_s),
            has_moved=again.seen != look.seen,
            may_run_ahead=may_run_ahead(self._index_sampler),
            samples_draw=self._draws,
            loop_draws=loop_draws,
            num_left=self._num_left(),
            num_slots=self._options.num_slots + capacity,
            num_cores=self._options.num_cores + capacity,
        )

    def _surprise(self, batch: Any) -> str:
        """Return why others may not make the batches although the evidence is good, or ""."""
        self._digest = self._digest_of(batch)
        if not self._digest:
            return "its batches cannot be compared"
        if self._draws != self._usual.samples_draw:
            return "its samples draw random numbers in some epochs only"
        return ""

    def _watched(self, deadline: Deadline) -> _Look:
        began_s = thread_cpu_s()
        try:
            seen, why_not = watch_all(self._job, deadline, self._pages), ""
        except Unwatchable as reason:
            seen, why_not = b"", f"its state cannot be watched: {reason}"
        return _Look(thread_cpu_s() - began_s, seen, why_not)

    def _digest_of(self, batch: Any) -> str:
        """Return a batch's digest; empty if it holds something that cannot be pickled."""
        try:
            return self._options.digest(batch)
        except Exception:
            return ""

    # -- ahead ---------------------------------------------------------------------------------

    def _begin(self, index: Any, generators: bytes, num_workers: int) -> str:
        """Have processes make a batch that is made here as well, and those that follow it.

        Returns why there are no processes, or "": the script, which asked for none, goes on.
        """
        if orphans.come_here():
            return "in PID 1 and in a subreaper os.wait() would see the processes that help"
        if at_fork.has_functions_of_the_scripts():
            return "the script's own at-fork functions would run, which they do not without workers"
        if why := why_no_second_copy():
            return why
        self._memory_seen_s = now_s()
        self._state = state = Ahead(
            num_slots=num_workers, is_sequence=self._draws, may_hedge=self._options.may_hedge
        )
        try:
            self._driver = Driver(
                state, self._job, multiprocessing.get_context("fork"),
                processes=_processes(num_workers),
                arena_nbytes=self._options.arena_nbytes,
                held_limit_nbytes=-1,  # everything is copied: torch's tensors are ordinary memory
                fleet=None if self._draws else self._options.fleet,
                wish=self._wish,
                say=self._options.say,
            )  # fmt: skip
        except OSError as error:
            return f"no process can be started: {error}"
        close_at_exit(self)
        self._options.tell(Decision(""))
        self._send(index, generators, must_audit=True)
        self._fill()
        return ""

    def _send(self, index: Any, generators: bytes | None, must_audit: bool = False) -> None:
        assert self._driver is not None
        self._driver.draw((index, generators, must_audit))

    def _fill(self, generators: bytes | None = None) -> None:
        """Draw index lists and send them. generators: for the first, if a guess begins anew."""
        assert self._driver is not None
        while self._state.wants_index:
            try:
                index = super()._next_index()  # type: ignore[no-untyped-call]
            except StopIteration:
                return
            self._drawn.append(index)
            self._send(index, generators)
            generators = None

    def _after_audit(self) -> Any:
        """Go on only if a process has made the same batch as was made here already."""
        made = self._taken()
        if made is not None and (
            self._digest_of(made[0]) != self._digest
            or (made[1] is not None and made[1] != self._generators)
        ):
            self._leave(DIFFERENT)
        elif made is not None:
            self._step = InProcessIterator._ahead
        return self._step(self)

    def _ahead(self) -> Any:
        if not self._drawn:
            self._close(LEAVE_S)
            raise StopIteration
        why = self._why_no_room() or self._why_moved()
        if not why and self._draws and save_generators() != self._generators:
            return self._guessed_wrong()
        made = None if why else self._taken()
        if why:
            self._leave(why)
        if made is None:
            return self._step(self)
        batch, generators = made
        if generators is not None and not self._draws:
            self._leave("its samples draw random numbers")
            return self._step(self)
        index = self._drawn.popleft()
        self._num_right += 1
        if self._num_right % self._audit_every == 0:
            return self._audited(index, batch, generators)
        if generators is not None:
            restore_generators(generators)
            self._generators = generators
        self._fill()
        return self._pinned(batch)

    def _audited(self, index: Any, batch: Any, generators: bytes | None) -> Any:
        """Make a batch here as well, and go on ahead only if it is the same."""
        own = self._dataset_fetcher.fetch(index)
        own_generators = save_generators()
        expected = self._generators if generators is None else generators
        same = self._digest_of(own) == self._digest_of(batch) != ""
        if not same or (self._draws and own_generators != expected):
            self._leave(DIFFERENT)
        else:
            self._generators = own_generators
            self._fill()
        return self._pinned(own)

    def _why_moved(self) -> str:
        look = self._watched(Deadline(None))
        has_moved = look.seen != self._fingerprint
        return look.why_not or ("the training loop changes its state" if has_moved else "")

    def _why_no_room(self) -> str:
        """Return why memory is short, or "". Checked now and then, while a copy still fits."""
        if now_s() - self._memory_seen_s < LOOK_AT_MEMORY_EVERY_S:
            return ""
        self._memory_seen_s = now_s()
        return why_no_second_copy()

    def _guessed_wrong(self) -> Any:
        """Make this batch here, since the loop has drawn, and guess anew from there."""
        assert self._driver is not None
        self._num_wrong += 1
        if self._num_wrong > MAX_WRONG + self._num_right // RIGHT_PER_WRONG:
            self._leave("its samples draw random numbers, and so does the training loop")
            return self._step(self)
        batch = self._make(self._next_index())
        self._generators = save_generators()
        self._state.forget()
        for number, index in enumerate(self._drawn):
            self._send(index, None if number else self._generators)
        self._fill(None if self._drawn else self._generators)
        return batch

    def _taken(self) -> Any | None:
        """Return (batch, generators or None) of the next task; None if the processes gave it up."""
        assert self._driver is not None
        patience_s = PATIENCE_S + PATIENCE_FACTOR * self._fetch_s
        made = self._driver.wait_next(Deadline(patience_s))
        if made is TIMED_OUT:
            made = None
            self._leave(f"other processes took more than {patience_s:.0f} s for a batch")
        elif isinstance(made, Died):
            self._leave(str(made.how))
            made = None
        elif isinstance(made, Failed):
            self._leave("its batches cannot be sent")
            made = None
        return made

    def _leave(self, why: str) -> None:
        """End the processes; what they were to make is made here."""
        self._close(0.0)
        self._stay(why, None if why == TOO_LITTLE else self._step_s)

    def _close(self, grace_s: float) -> None:
        forget(self)
        self._pages = None
        if self._driver is not None:
            num_taken = max(self._usual.num_taken, self._num_yielded)  # more than by a peek
            self._options.ended(replace(self._usual, num_taken=num_taken))
            self._driver.close(grace_s)


def _processes(num: int) -> list[Any]:
    """Return processes that take themselves for the training process.

    torch makes none here: the numbers in the names of those that the script makes stay.
    """
    counter = process._process_counter  # type: ignore[attr-defined]
    process._process_counter = itertools.count(1)  # type: ignore[attr-defined]
    made = [multiprocessing.get_context("fork").Process(name="MainProcess") for _ in range(num)]
    process._process_counter = counter  # type: ignore[attr-defined]
    return made
