"""Keeps the run log of this process, and writes the report when it ends.

Promise: exactly one report a process, by `finish` at exit or by the report keeper (keeper.py) when
the process ends in a way that runs no exit handler. Only processes that iterated a loader,
or compress gradients, write one.
Owner: the thread that iterates; two threads that iterate write rows of different loaders.
"""

import contextlib
import fcntl
import os
import resource
import signal
import sys
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol

from stoker import descriptors, orphans, speak
from stoker.clock import now_s, process_cpu_s
from stoker.config import PAGE_URL, Settings
from stoker.reports.file import own_file, write
from stoker.reports.log import MAX_LOADERS, RunLog
from stoker.reports.metrics import FastPlace, LoaderRecord, Remembered, RunRecord, as_json
from stoker.reports.ranks import Ranks, local_rank, rank_of
from stoker.reports.summary import summary
from stoker.runs.about import about
from stoker.runs.crew import At, Looks
from stoker.runs.folder import folder_of
from stoker.stalls.device import Marks
from stoker.stalls.kinds import Kind
from stoker.stalls.sampler import Sampler, sampler_of

REMEMBERED_S = 5.0  # how stale what is known of remembered samples, and of faster ways, may be then
MAX_SAID, MAX_SLOW = 200, 2000  # messages and slow batches in a log
REFRESH_S = 0.2  # how stale CPU time and memory may be after a kill -9

_KEEPER_FDS = (7, 8, 9)  # lifeline, log, pidfd; a shell hands on no higher ones


class Exchanged(Protocol):
    """The bytes that a model's ranks have sent each other, and what fp32 would have taken.

    scheme: how they are compressed; None if that is the script's business.
    """

    scheme: str | None
    wire_nbytes: int
    raw_nbytes: int


class _Owned:
    """A record and the loader that it belongs to."""

    def __init__(self, owner: object, record: LoaderRecord) -> None:
        self.record = record
        self.give_to(owner)

    def give_to(self, owner: object) -> None:
        try:
            self.owner: Callable[[], object] = weakref.ref(owner)
        except TypeError:  # one of a kind that cannot be watched
            self.owner = _nobody


def _nobody() -> None:
    return None


class Recorder:
    """The recorder of one process, made when its first loader is iterated.

    looks: called whenever this process's own resource use is read; num_cores: that this rank may
    use; exposed: each gives the share of a backward pass, at this moment, that waits for other ranks.
    """

    def __init__(
        self,
        settings: Settings,
        environ: Mapping[str, str] = os.environ,
        looks: Sequence[Callable[[], None]] = (),
        num_cores: int = 1,
        began_s: float | None = None,
        exposed: Sequence[Callable[[], float]] = (),
    ) -> None:
        self.run = RunRecord(num_cores=num_cores)
        self.served_s: Callable[[], float] = float  # by CPUs of other machines; of none: 0.0
        self.files_sent: Callable[[], int] = int  # bytes of files; of none: 0
        self.remembered: Callable[[], Remembered | None] = _nobody
        self.fast: Callable[[], list[FastPlace] | None] = _nobody
        self.storage: Callable[[], dict[str, Any] | None] = _nobody
        self._storage_s = 0.0  # when it was asked
        self._may_sample = False
        self._sampler: Sampler | None = None
        self._sampled: LoaderRecord | None = None  # to which goes what is seen
        self._marks = Marks()
        self._remembered_s = self._fast_s = 0.0  # when those were written to the log
        self._settings = settings
        self._pid = os.getpid()
        self._began_s = now_s() if began_s is None else began_s
        self._refreshed_s = 0.0
        # Guards _loaders and _owned. Taken again where a signal handler of the script's, which
        # came while it was held, iterates a loader.
        self._lock = threading.RLock()
        self._loaders: list[LoaderRecord] = []
        self._owned: dict[tuple[object, ...], list[_Owned]] = {}  # by place and looks
        self._log: RunLog | None = None
        self._is_done = False
        self._lifeline = (-1, -1)
        self._lifeline_is = (0, 0)
        self._ranks = Ranks()
        self._exchanged: list[Exchanged] = []
        self._looks, self._shares_exposed = looks, exposed
        self._num_said = self._num_slow = 0
        self._slow_places: set[str] = set()
        self._crews: dict[int, weakref.WeakMethod[Callable[[], Any]]] = {}
        self._crew_looks = Looks()
        self._report_file: Path | None = None
        self._quiet = settings.quiet
        self.run.cluster = settings.cluster
        self.run.price_worker = settings.price_worker
        self.run.price_trainer = settings.price_trainer
        self._begin(environ)

    @speak.guarded
    def _begin(self, environ: Mapping[str, str]) -> None:
        self.run.rank = rank_of(environ)
        self._quiet = self._quiet or bool(self.run.rank)  # one summary: rank 0's
        self._report_file = own_file(self._settings.report_json, self.run.rank)
        shown = (self._report_file, self._settings.page, self._settings.tensorboard)
        if any(shown) or not self._quiet:
            self._outlive(environ)

    def _runs_folder(self, environ: Mapping[str, str]) -> str | None:
        folder = None if self._settings.no_run_log else folder_of(environ)
        return None if folder is None else str(folder)

    def _live(self, environ: Mapping[str, str]) -> dict[str, Any]:
        """Return what of a run is shown while it lasts, as live/shown.py takes it; by one rank of a machine."""
        asked = self._settings
        is_first = local_rank(environ) == 0
        return {
            "page": asked.page if is_first else None,
            "token_file": asked.page_token,
            "announced": environ.get(PAGE_URL, ""),
            "tensorboard": asked.tensorboard,
            "path": [path for path in sys.path if isinstance(path, str) and path],  # libraries'
        }

    def _outlive(self, environ: Mapping[str, str]) -> None:
        """Open the log, start the report keeper; if that fails, only a killed run has no report."""
        try:
            self._log = RunLog()
            self._lifeline = os.pipe()  # ends with this process
            self._lifeline_is = descriptors.of(self._lifeline[0])  # both ends
            os.register_at_fork(after_in_child=self._let_go)
            self._append(
                "settings",
                pid=self._pid,
                report_file=str(self._report_file) if self._report_file else None,
                quiet=self._quiet,
                rank=self.run.rank,
                cluster=self._settings.cluster,
                price_worker=self._settings.price_worker,
                price_trainer=self._settings.price_trainer,
                began_s=self._began_s,
                runs_folder=self._runs_folder(environ),
                about=about(self._settings, environ),
                live=self._live(environ),
            )
            self._start_keeper()
            self._may_sample = not self._settings.no_stalls
        except Exception as error:  # no descriptor, process, memory; a limit on files
            self._without_log(error)
            if speak.raised_by_handler(error):
                self.close()
                raise

    def _without_log(self, error: Exception) -> None:
        if self._log is not None:
            with contextlib.suppress(ValueError):  # it is closed
                self._log.mark_done()  # what a keeper has by now is no report
                self._log.close()
        self._log = None
        speak.say(f"no report if this run is killed: {error}")

    def _append(self, kind: str, **values: Any) -> None:
        if self._log is None or os.getpid() != self._pid:  # a forked child writes to a copy's end
            return
        try:
            self._log.append(kind, **values)
        except Exception as error:  # a limit on files
            self._without_log(error)

    @speak.guarded
    def begin(self, began_s: float) -> None:
        """Note that the first loader is iterated."""
        self._began_s = began_s
        self._append("began", began_s=began_s)

    def loader(
        self,
        owner: object,
        place: str,
        looks: tuple[object, ...],
        *,
        chains: int,
        reasons: list[str],
        dataset: str = "",
    ) -> LoaderRecord:
        """Return the record of the loader with this place and looks; a new one the first time.

        owner: the loader. If the record belongs to another one that still exists, this is not the
        same loader; if that one is gone, this one was made anew for another epoch. dataset: in words.
        """
        with self._lock:
            owned = self._owned.setdefault((place, *looks), [])
            whose = {id(each.owner()): each for each in reversed(owned)}
            found = whose.get(id(owner)) or whose.get(id(None))
            if found is None:
                found = _Owned(owner, self._new(place, chains, reasons, dataset))
                owned.append(found)
            found.give_to(owner)
        self.look_at_ranks()
        return found.record

    def _new(self, place: str, chains: int, reasons: list[str], dataset: str) -> LoaderRecord:
        number = min(len(self._loaders), MAX_LOADERS - 1)
        record = LoaderRecord(number, place, not reasons, reasons, chains, dataset=dataset)
        self._loaders.append(record)
        self._append(
            "loader",
            number=number,
            place=place,
            offloaded=not reasons,
            reasons=reasons,
            chains=chains,
            dataset=dataset,
        )
        return record

    @speak.guarded
    def delivered(
        self, record: LoaderRecord, sha256: str | None, *, is_hashed: bool = False
    ) -> None:
        """Log the record's new numbers after a batch was delivered. No-op in a forked copy.

        is_hashed: it has a digest, or None if it could not be hashed.
        """
        if os.getpid() != self._pid:
            return
        if is_hashed:
            record.digests.append(sha256)
            self._append("digest", number=record.number, sha256=sha256)
        now = now_s()
        self.run.wall_s = now - self._began_s
        self._sample(record)
        if self._log is not None:
            self._log.put_loader(record)
            self._log.put_run(self.run)
            self._log.put_look(now, record)
        if now - self._refreshed_s > REFRESH_S:
            self.refresh()

    def left(self, record: LoaderRecord) -> None:
        """Note that no step of this loader goes on: its iterator has ended."""
        if self._sampled is record:
            self._sampled = None

    def _sample(self, record: LoaderRecord) -> None:
        """Have this thread looked at; what it is seen to do from now on is this loader's."""
        thread = threading.get_ident()
        if self._sampler is not None and self._sampler.is_own(thread):
            return  # collected garbage there: an iterator that nobody holds any more
        self._sampled = record
        if self._sampler is not None:
            self._sampler.thread = thread
            if not self._is_done:
                with contextlib.suppress(RuntimeError):  # no thread to be had: later, perhaps
                    self._sampler.start()  # it has ended before a fork
        elif self._may_sample and not self._is_done:
            self._may_sample = False  # only one try
            self._sampler = sampler_of(
                self._add_seen, self._exposed, self._marks.is_behind, thread, self._look_at_crews
            )

    def mark(self) -> None:
        """Mark on the GPU that a batch is asked for, or handed out, if anybody looks."""
        if self._sampler is not None:
            self._marks.mark()

    def _add_seen(self, kind: Kind, seconds: float) -> None:
        """Add what the training thread did; called by the sampler's thread, and nobody else writes these numbers."""
        record, name = self._sampled, kind.value
        if name and record is not None:
            setattr(record, name, getattr(record, name) + seconds)

    def serve(self, record: LoaderRecord, crew: weakref.WeakMethod[Callable[[], Any]]) -> None:
        """Note who makes a loader's batches now. crew: see Driver.crew."""
        self._crews[record.number] = crew

    def _look_at_crews(self) -> None:
        """Count what workers are at, for the page; called by the sampler's thread."""
        if self._settings.page is None or self._log is None:
            return
        found = []
        with contextlib.suppress(Exception):  # of what changes meanwhile; the next look is soon
            for number, crew in tuple(self._crews.items()):
                look = crew()
                if look is not None and (told := look()) is not None:
                    num_held, workers = told
                    found.append(
                        (
                            number,
                            num_held,
                            [At(int(slot.role), slot.number, *each) for slot, *each in workers],
                        )
                    )
            self._crew_looks.add(found)
            self._log.put_crew(self._crew_looks)

    def _exposed(self) -> float:
        return max((share() for share in self._shares_exposed), default=0.0)

    @speak.guarded
    def exchanges(self, counts: Exchanged) -> None:
        """Add the counts of a model whose gradients may be compressed from now on."""
        self._exchanged.append(counts)
        self._look_at_gradients()

    @property
    def newest(self) -> LoaderRecord:
        """The record of the loader that was first iterated last."""
        return self._loaders[-1]

    def waited_s(self) -> float:
        """Return the seconds waited for all loaders, until now."""
        return sum(record.wait_s for record in self._loaders.copy())

    @speak.guarded
    def settle(self, record: LoaderRecord, reasons: list[str]) -> None:
        """Record whether a loader without workers is offloaded, now that it is known."""
        if reasons == record.reasons and record.offloaded is not bool(reasons):
            return
        record.reasons, record.offloaded = reasons, not reasons
        self._append("settled", number=record.number, reasons=reasons, offloaded=record.offloaded)

    @speak.guarded
    def give_up(self, record: LoaderRecord, why: str) -> None:
        """Record that stoker failed before the loader's first batch and left it to torch. Only a
        note if other epochs of it were not."""
        if record.num_batches and record.offloaded:
            self.note(record, f"left to torch in one epoch: {why}")
        else:
            self.settle(record, [why])

    @speak.guarded
    def note(self, record: LoaderRecord, text: str) -> None:
        if text not in record.notes:
            record.notes.append(text)
            self._append("note", number=record.number, text=text)

    @speak.guarded
    def said(self, text: str) -> None:
        """Note a message to the user, for the page."""
        if self._num_said < MAX_SAID:
            self._num_said += 1
            self._append("said", text=text, at_s=now_s() - self._began_s)

    @speak.guarded
    def slow(self, record: LoaderRecord, batch: int, why: str) -> None:
        """Note why a batch took long to make. batch: its number, from 1 on."""
        self._slow_places.add(record.place)
        if self._num_slow < MAX_SLOW:
            self._num_slow += 1
            at_s = now_s() - self._began_s
            self._append("slow", number=record.number, batch=batch, why=why, at_s=at_s)

    def has_slow(self, place: str) -> bool:
        """Whether batches of the loader at a line of the script took long to make."""
        return place in self._slow_places

    @speak.guarded
    def refresh(self) -> None:
        """Read this process's own resource use."""
        self.look_at_ranks()
        self._refreshed_s = now_s()
        self.run.wall_s = self._refreshed_s - self._began_s
        self.run.cpu_s = process_cpu_s()
        self.run.away_hours = self.served_s() / 3600
        self.run.files_sent_nbytes = self.files_sent()
        self._look_at_gradients()
        for look in self._looks:
            look()
        self._look_at_remembered()
        self._look_at_fast()
        self._look_at_storage()
        self.run.peak_rss_nbytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        if self._log is not None:
            self._log.put_run(self.run)

    def snapshot(self, ended: str) -> dict[str, Any]:
        """Return the report as it stands, as if the run had ended now, in the way that is given."""
        self.refresh()
        return as_json(self.run, self._loaders, ended)

    @speak.guarded
    def finish(self) -> None:
        """Write the report. Idempotent; a no-op in a forked copy."""
        if os.getpid() != self._pid or self._is_done:
            return
        self.look_at_ranks(at_end=True)
        self.refresh()
        self._look_at_storage(at_end=True)
        ended = _how_it_ends()
        self._append("ended", how=ended)
        self._mark_done()
        report = as_json(self.run, self._loaders, ended)
        publish(report, self._report_file, self._quiet)

    def _mark_done(self) -> None:
        self._is_done = True
        if self._sampler is not None:
            self._sampler.stop()
        if self._log is not None:
            self._log.mark_done()

    def _look_at_remembered(self) -> None:
        self.run.remembered = self.remembered()
        if (
            self.run.remembered is not None
            and self._refreshed_s - self._remembered_s > REMEMBERED_S
        ):
            self._remembered_s = self._refreshed_s
            self._append("remembered", remembered=self.run.remembered.as_json())

    def _look_at_fast(self) -> None:
        before, self.run.fast = self.run.fast, self.fast()
        found = self.run.fast
        if found and found != before and self._refreshed_s - self._fast_s > REMEMBERED_S:
            self._fast_s = self._refreshed_s
            self._append("fast", fast=[asdict(each) for each in found])

    def _look_at_storage(self, at_end: bool = False) -> None:
        """Ask the storage process now and then: it takes a millisecond."""
        if at_end or self._refreshed_s - self._storage_s > REMEMBERED_S:
            self._storage_s = self._refreshed_s
            told = self.storage()
            if told is not None:  # else it has ended: what it told last stands
                self.run.storage = told
                self._append("storage", storage=told)

    def _look_at_gradients(self) -> None:
        self.run.gradients_wire_nbytes = sum(each.wire_nbytes for each in self._exchanged)
        self.run.gradients_raw_nbytes = sum(each.raw_nbytes for each in self._exchanged)
        schemes = [each.scheme for each in self._exchanged if each.scheme is not None]
        coded = [scheme for scheme in schemes if scheme != "fp32"]
        scheme = next(iter(coded or schemes), None)
        if scheme != self.run.gradients:
            self.run.gradients = scheme
            self._append("gradients", scheme=scheme)

    @speak.guarded
    def look_at_ranks(self, at_end: bool = False) -> None:
        self._ranks.look(at_end)
        if self._ranks.without_stoker != self.run.without_stoker:
            self.run.without_stoker = self._ranks.without_stoker
            self._append("ranks", without_stoker=self.run.without_stoker)

    @speak.guarded
    def close(self) -> None:
        """Close the files; the report keeper ends without a report."""
        self._mark_done()
        self._let_go()
        descriptors.close(self._lifeline[0], self._lifeline_is)
        if self._log is not None:
            self._log.close()
            self._log = None

    def _start_keeper(self) -> None:
        """Start the process that writes the report if this one cannot.

        A shell starts it and ends, so that the script has no child that it does not expect. Not
        started if it would be this process's child all the same; PID 1 ends with all others anyway.
        """
        if orphans.come_here():
            if self._settings.page is not None or self._settings.tensorboard is not None:
                reason = "in PID 1 and in a subreaper os.wait() would see the process that shows it"
                speak.say(
                    f"the run is not shown: {reason}; start it under an init (docker run --init)"
                )
            return
        keeper = str(Path(__file__).with_name("keeper.py"))
        assert self._log is not None
        pidfds = _pidfds(self._pid)
        fds: list[int] = []
        try:
            sources = [self._lifeline[0], self._log.fd, *pidfds]
            places = _KEEPER_FDS[: len(sources)]
            for fd in sources:
                fds.append(fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 20))
            numbers = [*map(str, places), "-1"][:3]
            command = [sys.executable, "-I", "-S", keeper, *numbers, str(self._pid)]
            moves = zip(fds, places, strict=True)
            # Signals blocked from its first moment: a SIGTERM to the group shall not reach it.
            with orphans.unnoticed():
                shell_pid = os.posix_spawn(
                    "/bin/sh",
                    ["/bin/sh", "-c", '"$@" &', "sh", *command],
                    os.environ,
                    file_actions=[(os.POSIX_SPAWN_DUP2, fd, place) for fd, place in moves],
                    setsigmask=signal.valid_signals(),
                )
                with contextlib.suppress(ChildProcessError):  # a thread of the script's took it
                    os.waitpid(shell_pid, 0)
        finally:
            for fd in (*fds, *pidfds):
                os.close(fd)

    def _let_go(self) -> None:
        """Close the lifeline's write end; also in a forked child: only the trainer may hold it."""
        if self._lifeline[1] >= 0:
            descriptors.close(self._lifeline[1], self._lifeline_is)
            self._lifeline = (self._lifeline[0], -1)


def _pidfds(pid: int) -> list[int]:
    """Return a pidfd of the process; none if a sandbox refuses it."""
    try:
        return [os.pidfd_open(pid)]
    except OSError:
        return []


def publish(report: dict[str, Any], file: Path | None, quiet: bool) -> None:
    """Write the report where it was asked for. Problems are told, never raised."""
    if file is not None:
        write(report, file)
    if not quiet:
        speak.write(summary(report))


def _how_it_ends() -> str:
    kind = getattr(sys, "last_type", None)
    return "exit" if kind is None else f"exception {kind.__name__}"
