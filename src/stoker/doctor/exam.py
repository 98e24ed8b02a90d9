"""Examines a loader in the script's own training process: as it is, then with batches that cost nothing, then apart.

    plain steps, until they are steady | the last batch again and again | samples and trials in children | the end

Promise: until the plain steps are over, batches are torch's own; then the script is ended by a SystemExit out of
`next()`. What is tried runs in forked children: the script's state stays as it is.
"""

import atexit
import contextlib
import json
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from stoker.clock import now_s, process_cpu_s
from stoker.config import Settings
from stoker.doctor.facts import Facts, Setup, Steps
from stoker.doctor.plan import FOUND, PID, plan_of
from stoker.local import immortal
from stoker.reports.metrics import LoaderRecord, Remembered
from stoker.reports.samples import num_samples
from stoker.stalls.split import Seen, split_of
from stoker.tables import counted
from stoker.verify.record import STOPS
from stoker.verify.side import generators

MIN_PLAIN = 3  # steps, or nothing can be said
MIN_STEPS, MIN_S, MAX_S = 20, 4.0, 20.0  # plain ones
NUM_WATCHED = 8  # steps in which it is seen whether the loop draws random numbers
AHEAD = 4  # steps from the first rank's decision to its effect: ranks are one apart at most
MAX_DEPTH = 8  # of containers
FREE_FROM = "free-from"  # a file
STEADY = 0.05  # two thirds of them are that much apart at most
MIN_FREE_S, MAX_FREE_S = 3.0, 8.0
START_FRAC = 0.2  # of plain steps, that are left out: caches are cold, workers run ahead
MIN_LEFT_S = 15.0  # for all that is tried, whatever was used before
FREE_START_FRAC = 0.5  # of free ones: workers go on until they have made what was asked for

_plan = plan_of(os.environ)
_exam: "Exam | None" = None


class Run(Protocol):
    """The run of this process, as far as trials need it: intercept/run.py."""

    def begin(self, new: Settings) -> None: ...
    def recorder(self) -> Any: ...
    def remembered(self) -> Remembered | None: ...
    def cores(self) -> int: ...


class Meter(Protocol):
    way: Any
    _record: LoaderRecord


class Moment(NamedTuple):
    """Says what was counted when the loop got a batch."""

    got_s: float
    cpu_s: float
    seen: Seen


class Step(NamedTuple):
    """Describes a step: from one batch to the next. num: samples of that."""

    wall_s: float
    wait_s: float
    cpu_s: float
    num: int
    seen: Seen


class Examined:
    """Holds what is known of one loader; its iterators share it. loader: the script's own."""

    def __init__(self, exam: "Exam", loader: Any, record: LoaderRecord) -> None:
        self.exam, self.loader, self.record = exam, loader, record
        self.plain: list[Step] = []
        self.free: list[Step] = []
        self.first_waits_s: list[float] = []
        self.is_free = False  # batches cost nothing now
        self.draws = False  # the loop, from the global generators
        self._batch: Any = None
        self._num = 0  # samples of it
        self._last: Moment | None = None
        self._drawn: dict[str, str] | None = (
            None  # what the generators were when the loop got its batch
        )

    def begin(self) -> None:
        """Note that an iterator was made: the next step is none."""
        self._last = None

    def way(self, original: Callable[[Any], Any], iterator: Any, meter: Meter) -> Any:
        """Return the next batch, in place of the iterator itself (intercept/meter.py, Way)."""
        asked_s = now_s()
        if len(self.plain) < NUM_WATCHED and self._drawn is not None:
            self.draws = self.draws or generators() != self._drawn
        batch = rebuilt(self._batch) if self.is_free else None
        if not self.is_free:
            try:
                batch = original(iterator)
            except BaseException:  # the end of an epoch, too
                self._last = self._drawn = None
                raise
            self._num, self._batch = count(self.loader, batch), rebuilt(batch)
        self._note(asked_s)
        self.exam.look(self)
        if len(self.plain) < NUM_WATCHED:
            self._drawn = generators()
        return batch

    @property
    def is_full(self) -> bool:
        """Whether the last batch is one like most, and not the rest at the end of an epoch."""
        return self._num >= max(step.num for step in self.plain)

    def facts(self, setup: Setup) -> Facts:
        """Return what is known by its steps."""
        waits_s = self.first_waits_s
        first_wait_s = sum(waits_s) / len(waits_s) if waits_s else 0.0
        free = summed(self.free, FREE_START_FRAC) if self.free else None
        return Facts(setup, first_wait_s, summed(self.plain, START_FRAC), free, None, [])

    def _note(self, asked_s: float) -> None:
        record, before = self.record, self._last
        self._last = now = Moment(now_s(), process_cpu_s(), record.seen)
        if before is None:
            self.first_waits_s.append(now.got_s - asked_s)
            return
        step = Step(
            now.got_s - before.got_s, now.got_s - asked_s, now.cpu_s - before.cpu_s,
            self._num, now.seen.minus(before.seen),
        )  # fmt: skip
        (self.free if self.is_free else self.plain).append(step)


class Exam:
    """The examination of one process. subject: the loader that is looked at closely, once it is known."""

    def __init__(self, run: Run) -> None:
        assert _plan is not None
        self.subject: Examined | None = None
        self.pid = os.getpid()
        self._plan, self._run = _plan, run
        self._loaders: dict[int, Examined] = {}
        self._end_s = float("inf")
        self._folder = Path(_plan.folder)
        self._free_from: tuple[int, int] | None = None  # a loader's number, and a step of it
        (self._folder / f"{PID}{self.pid}").touch()
        atexit.register(self._ended)

    def follow(self, loader: Any, record: LoaderRecord) -> Examined:
        examined = self._loaders.get(record.number)
        if examined is None:
            examined = self._loaders[record.number] = Examined(self, loader, record)
        examined.loader = loader
        examined.begin()
        return examined

    def look(self, one: Examined) -> None:
        """Go on with the next part, if this one is over. Raises SystemExit when all is."""
        if self._end_s == float("inf"):
            self._end_s = now_s() + self._plan.limit_s
        if self.subject is None:
            if self._goes_free(one):
                self.subject, one.is_free = one, True
        elif self.subject is one and rank() == 0 and _is_long_enough(one.free):
            self._finish(one)

    def _goes_free(self, one: Examined) -> bool:
        """Whether batches of a loader cost nothing from here on. All ranks begin at the same step: a rank that was still
        at the end of an epoch would wait for the others for ever."""
        if not one.plain or not one.is_full:
            return False
        if world_size() == 1:
            return self._has_enough(one)
        file = self._folder / FREE_FROM
        if self._free_from is None:
            if rank() == 0 and self._has_enough(one):
                part = self._folder / f"part-{self.pid}"
                part.write_text(json.dumps([one.record.number, len(one.plain) + AHEAD]))
                part.replace(file)
            if file.exists():
                number, step = json.loads(file.read_text())
                self._free_from = number, step
        return self._free_from is not None and (
            one.record.number == self._free_from[0] and len(one.plain) >= self._free_from[1]
        )

    def _has_enough(self, one: Examined) -> bool:
        if len(one.plain) < MIN_PLAIN:
            return False
        if now_s() > self._end_s:
            return True
        return (
            len(one.plain) >= self._plan.num_steps
            if self._plan.num_steps
            else are_steady(one.plain)
        )

    def _finish(self, one: Examined) -> None:
        from stoker.doctor import trial

        left_s = max(MIN_LEFT_S, self._end_s - now_s())
        setup = setup_of(one, self._run)
        costs = trial.costs(one.loader, setup, left_s / 4)
        free = one.facts(setup).free
        busy_s = free.wall_s / free.num if free and free.num else 0.0
        trials = trial.trials(one.loader, setup, trial.Loop(busy_s, one.draws), self._run)
        kept = trial.kept(one.loader, setup, costs.sample_s, trials, self._run, left_s / 2)
        setup = replace(setup, image_threads=trial.image_threads())
        if setup.num_workers and setup.context != "fork":
            nbytes = trial.pickled_nbytes(one.loader.dataset, left_s / 4)
            setup = replace(setup, pickled_nbytes=nbytes)
        listed = trial.listed_nbytes(one.loader.dataset, left_s / 4) if setup.num_workers else 0
        setup = replace(setup, listed_nbytes=listed, are_shared=not immortal.why_not())
        facts = one.facts(setup)
        self._write(replace(facts, costs=costs, trials=trials, kept=kept))
        self._stop()

    def _write(self, facts: Facts) -> None:
        part = self._folder / f"part-{self.pid}"
        part.write_text(json.dumps(facts.to_json()))
        part.replace(self._folder / f"{FOUND}{self.pid}.json")

    def _stop(self) -> None:
        """End this process, and have the command end those of the other ranks, which wait for this one."""
        global _exam
        _exam = _OVER
        with contextlib.suppress(OSError):  # `stoker doctor` was killed
            pids = [int(file.name.removeprefix(PID)) for file in self._folder.glob(f"{PID}*")]
            pipe = os.open(self._folder / STOPS, os.O_WRONLY | os.O_NONBLOCK)
            os.write(pipe, b"".join(b"%d\n" % pid for pid in pids))
            os.close(pipe)
        raise SystemExit(0)

    def _ended(self) -> None:
        """Write what is known where the script ends before all is."""
        if _exam is not self or os.getpid() != self.pid or rank() != 0:
            return
        seen = [each for each in self._loaders.values() if len(each.plain) >= MIN_PLAIN]
        if seen:
            one = max(seen, key=lambda each: sum(step.wall_s for step in each.plain))
            why = f"the script ended after {counted(len(one.plain), 'step')}"
            self._write(replace(one.facts(setup_of(one, self._run)), why=why))


_OVER: Any = object()  # in place of an exam, in children and at the end


def follow(loader: Any, meter: Meter, run: Run) -> None:
    """Examine an iterator of the loader, by its meter; none in a child in which something is tried, or which the script
    has forked."""
    global _exam
    if _exam is _OVER or (_exam is not None and _exam.pid != os.getpid()):
        return
    if _exam is None:
        _exam = Exam(run)
    meter.way = _exam.follow(loader, meter._record).way


def leave() -> None:
    """Examine nothing more in this process, a child in which something is tried."""
    global _exam
    _exam = _OVER


def rank() -> int:
    """Return this process's rank, by its process group, else by the launcher."""
    dist: Any = sys.modules.get("torch.distributed")
    if dist is not None and dist.is_available() and dist.is_initialized():
        return int(dist.get_rank())
    return int(os.environ.get("RANK") or 0)


def world_size() -> int:
    dist: Any = sys.modules.get("torch.distributed")
    if dist is not None and dist.is_available() and dist.is_initialized():
        return int(dist.get_world_size())
    return int(os.environ.get("WORLD_SIZE") or 1)


def count(loader: Any, batch: Any) -> int:
    """Return the number of samples of a batch; 1 of what the loader does not batch."""
    if not getattr(loader, "_auto_collation", True):
        return 1
    many = 1 << 40
    num = num_samples(batch, getattr(loader, "batch_size", None) or many)
    return 1 if num == many else num


def rebuilt(batch: Any, depth: int = 0) -> Any:
    """Return a batch whose lists and dictionaries are new: a loop may take something out of them, and get it again."""
    if depth < MAX_DEPTH:
        if type(batch) is dict:
            return {key: rebuilt(value, depth + 1) for key, value in batch.items()}
        if type(batch) in (list, tuple):
            return type(batch)(rebuilt(value, depth + 1) for value in batch)
    return batch


def are_steady(steps: list[Step]) -> bool:
    """Whether so many steps were seen that more would tell nothing new, or it takes too long to wait for that."""
    all_s = sum(step.wall_s for step in steps)
    if len(steps) < MIN_PLAIN or (all_s < MAX_S and (len(steps) < MIN_STEPS or all_s < MIN_S)):
        return False
    third = len(steps) // 3
    middle, last = (summed(part, 0.0).rate for part in (steps[third:-third], steps[-third:]))
    return all_s >= MAX_S or abs(last - middle) <= STEADY * middle


def _is_long_enough(steps: list[Step]) -> bool:
    all_s = sum(step.wall_s for step in steps)
    return len(steps) >= 3 and (
        all_s >= MAX_FREE_S or (all_s >= MIN_FREE_S and len(steps) >= MIN_STEPS)
    )


def summed(steps: list[Step], start_frac: float) -> Steps:
    """Add up steps but the first of them, a share."""
    steps = steps[int(start_frac * len(steps)) :]
    seen = Seen()
    for step in steps:
        seen = seen.plus(step.seen)
    wall_s, wait_s = sum(step.wall_s for step in steps), sum(step.wait_s for step in steps)
    return Steps(
        len(steps), sum(step.num for step in steps), wall_s, wait_s, sum(step.cpu_s for step in steps),
        split_of(wait_s, max(0.0, wall_s - wait_s), seen),
    )  # fmt: skip


def setup_of(one: Examined, run: Run) -> Setup:
    import torch

    loader = one.loader
    steps = one.plain or one.free
    context = getattr(loader, "multiprocessing_context", None)
    return Setup(
        place=one.record.place,
        batch_size=max(step.num for step in steps),
        num_workers=int(getattr(loader, "num_workers", 0)),
        num_samples=_num_drawn(loader),
        pin_memory=bool(getattr(loader, "pin_memory", False)),
        persistent_workers=bool(getattr(loader, "persistent_workers", False)),
        context=str(getattr(context, "_name", None) or torch.multiprocessing.get_start_method()),
        is_iterable=isinstance(getattr(loader, "dataset", None), torch.utils.data.IterableDataset),
        cores=run.cores(),
        num_threads=torch.get_num_threads(),
        has_device=bool(torch.cuda.is_initialized()),
        world_size=world_size(),
        prefetch_factor=int(getattr(loader, "prefetch_factor", None) or 0),
        is_batched=bool(getattr(loader, "_auto_collation", True)),
    )


def _num_drawn(loader: Any) -> int:
    """Return how many samples an epoch has for this rank; 0 if nobody says."""
    for what in ("sampler", "dataset"):
        with contextlib.suppress(Exception):  # not every dataset has a length
            return len(getattr(loader, what))
    return 0
