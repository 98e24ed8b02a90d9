"""Examines a loader in the script's own training process: as it is, then with batches that cost nothing, then apart.

    plain steps, until they are steady | the last batch again and again | samples and trials in children | the end

Promise: until the plain steps are over, batches are torch's own; then the script is ended by a SystemExit out of
`next()`. What is tried runs in forked children: the script's state stays as it is.
"""

import atexit
import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from stoker.clock import now_s, process_cpu_s
from stoker.config import Settings
from stoker.doctor.facts import Facts, Setup, Steps
from stoker.doctor.plan import FOUND, plan_of
from stoker.reports.metrics import LoaderRecord, Remembered
from stoker.reports.samples import num_samples
from stoker.stalls.split import Seen, split_of
from stoker.verify.record import STOPS

MIN_STEPS, MIN_S, MAX_S = 20, 4.0, 20.0  # plain ones
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
    """What was counted when the loop got a batch."""

    got_s: float
    cpu_s: float
    seen: Seen


class Step(NamedTuple):
    """A step: from one batch to the next. num: samples of that."""

    wall_s: float
    wait_s: float
    cpu_s: float
    num: int
    seen: Seen


class Examined:
    """What is known of one loader; its iterators share it. loader: the script's own."""

    def __init__(self, exam: "Exam", loader: Any, record: LoaderRecord) -> None:
        self.exam, self.loader, self.record = exam, loader, record
        self.plain: list[Step] = []
        self.free: list[Step] = []
        self.first_waits_s: list[float] = []
        self.batch: Any = None
        self.is_free = False  # batches cost nothing now
        self._last: Moment | None = None

    def begin(self) -> None:
        """Note that an iterator was made: the next step is none."""
        self._last = None

    def way(self, original: Callable[[Any], Any], iterator: Any, meter: Meter) -> Any:
        """Return the next batch, in place of the iterator itself (intercept/meter.py, Way)."""
        asked_s = now_s()
        if not self.is_free or self.exam.subject is not self:
            try:
                self.batch = original(iterator)
            except BaseException:  # the end of an epoch, too
                self._last = None
                raise
        self._note(asked_s)
        self.exam.look(self)
        return self.batch

    def facts(self, setup: Setup) -> Facts:
        """Return what is known by its steps."""
        waits_s = self.first_waits_s
        first_wait_s = sum(waits_s) / len(waits_s) if waits_s else 0.0
        free = summed(self.free, FREE_START_FRAC) if self.free else None
        return Facts(setup, first_wait_s, summed(self.plain, START_FRAC), free, None, [])

    def _note(self, asked_s: float) -> None:
        record, before = self.record, self._last
        seen = Seen(
            record.own_s, record.copy_s, record.compute_s, record.communication_s, record.other_s
        )
        self._last = now = Moment(now_s(), process_cpu_s(), seen)
        if before is None:
            self.first_waits_s.append(now.got_s - asked_s)
            return
        num = num_samples(self.batch, getattr(self.loader, "batch_size", None) or 1 << 40)
        step = Step(
            now.got_s - before.got_s, now.got_s - asked_s, now.cpu_s - before.cpu_s,
            1 if num == 1 << 40 else num, seen.minus(before.seen),
        )  # fmt: skip
        (self.free if self.is_free else self.plain).append(step)


class Exam:
    """The examination of one process. subject: the loader that is looked at closely, once it is known."""

    def __init__(self, run: Run) -> None:
        assert _plan is not None
        self.subject: Examined | None = None
        self._plan, self._run = _plan, run
        self._loaders: dict[int, Examined] = {}
        self._end_s = now_s() + _plan.limit_s
        self._is_first = os.environ.get("RANK", "0") in ("", "0")
        self._pid = os.getpid()
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
        if self.subject is None and self._has_enough(one):
            self.subject, one.is_free = one, True
        elif self.subject is one and self._is_first and _is_long_enough(one.free):
            self._finish(one)

    def _has_enough(self, one: Examined) -> bool:
        if self._plan.num_steps:
            return len(one.plain) >= self._plan.num_steps
        return are_steady(one.plain) or now_s() > self._end_s

    def _finish(self, one: Examined) -> None:
        from stoker.doctor import trial

        left_s = max(MIN_LEFT_S, self._end_s - now_s())
        setup = setup_of(one, self._run)
        costs = trial.costs(one.loader, left_s / 4)
        trials = trial.trials(one.loader, setup, self._run)
        kept, rate = trial.kept(one.loader, setup, costs.sample_s, trials, self._run, left_s / 2)
        setup = replace(setup, image_threads=trial.image_threads())
        if setup.num_workers and setup.context != "fork":
            nbytes = trial.pickled_nbytes(one.loader.dataset, left_s / 4)
            setup = replace(setup, pickled_nbytes=nbytes)
        facts = one.facts(setup)
        self._write(replace(facts, costs=costs, trials=trials, kept=kept, kept_rate=rate))
        self._stop()

    def _write(self, facts: Facts) -> None:
        part = Path(self._plan.folder, f"part-{self._pid}")
        part.write_text(json.dumps(facts.to_json()))
        part.replace(Path(self._plan.folder, f"{FOUND}{self._pid}.json"))

    def _stop(self) -> None:
        global _exam
        _exam = _OVER
        try:
            pipe = os.open(Path(self._plan.folder, STOPS), os.O_WRONLY | os.O_NONBLOCK)
        except OSError:  # `stoker doctor` was killed
            raise SystemExit(0) from None
        os.write(pipe, b"%d\n" % self._pid)
        os.close(pipe)
        raise SystemExit(0)

    def _ended(self) -> None:
        """Write what is known where the script ends before all is."""
        if _exam is not self or os.getpid() != self._pid or not self._is_first:
            return
        seen = [each for each in self._loaders.values() if each.plain]
        if seen:
            one = max(seen, key=lambda each: sum(step.wall_s for step in each.plain))
            why = f"the script ended after {len(one.plain)} steps"
            self._write(replace(one.facts(setup_of(one, self._run)), why=why))


_OVER: Any = object()  # in place of an exam, in children and at the end


def follow(loader: Any, meter: Meter, run: Run) -> None:
    """Examine an iterator of the loader, by its meter; none in a child in which something is tried."""
    global _exam
    if _exam is _OVER:
        return
    if _exam is None:
        _exam = Exam(run)
    meter.way = _exam.follow(loader, meter._record).way


def leave() -> None:
    """Examine nothing more in this process, a child in which something is tried."""
    global _exam
    _exam = _OVER


def are_steady(steps: list[Step]) -> bool:
    """Whether so many steps were seen that more would tell nothing new, or it takes too long to wait for that."""
    all_s = sum(step.wall_s for step in steps)
    if len(steps) < 3 or (all_s < MAX_S and (len(steps) < MIN_STEPS or all_s < MIN_S)):
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
        num_samples=_length_of(getattr(loader, "dataset", None)),
        pin_memory=bool(getattr(loader, "pin_memory", False)),
        persistent_workers=bool(getattr(loader, "persistent_workers", False)),
        context=str(getattr(context, "_name", None) or torch.multiprocessing.get_start_method()),
        is_iterable=isinstance(getattr(loader, "dataset", None), torch.utils.data.IterableDataset),
        cores=run.cores(),
        num_threads=torch.get_num_threads(),
        has_device=bool(torch.cuda.is_initialized()),
        world_size=int(os.environ.get("WORLD_SIZE") or 1),
        prefetch_factor=int(getattr(loader, "prefetch_factor", None) or 0),
    )


def _length_of(dataset: Any) -> int:
    try:
        return len(dataset)
    except Exception:  # not every dataset has one
        return 0
