"""Keeps the run log of this process, and writes the report when it ends.

Promise: exactly one report a process, by `finish` at exit or by the keeper (keeper.py) when
the process ends in a way that runs no exit handler. Only processes that iterated a loader,
or compress gradients, write one.
Owner: the thread that iterates; two threads that iterate write rows of different loaders.
"""

import fcntl
import json
import os
import resource
import signal
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from stoker.clock import process_age_s, process_cpu_s
from stoker.config import Settings
from stoker.report.log import MAX_LOADERS, RunLog
from stoker.report.metrics import LoaderRecord, RunRecord, as_json
from stoker.report.ranks import Ranks, rank_of
from stoker.report.summary import summary

REFRESH_S = 0.2  # how stale CPU time and memory may be after a kill -9

_KEEPER_FDS = (7, 8, 9)  # lifeline, log, pidfd; a shell hands on no higher ones


class Exchanged(Protocol):
    """What a model's ranks have sent each other, and what that would have been in fp32.

    scheme: how; None where that is the script's business.
    """

    scheme: str | None
    wire_nbytes: int
    raw_nbytes: int


class Recorder:
    """The run log of one process, made when its first loader is iterated.

    looks: called whenever this process's own use is looked at.
    """

    def __init__(
        self,
        settings: Settings,
        environ: Mapping[str, str] = os.environ,
        looks: Sequence[Callable[[], None]] = (),
    ) -> None:
        self.run = RunRecord()
        self._settings = settings
        self._pid = os.getpid()
        self._refreshed_s = 0.0
        self._lock = threading.Lock()  # guards _loaders
        self._loaders: dict[tuple[object, ...], LoaderRecord] = {}
        self._log = RunLog()
        self._lifeline = os.pipe()  # ends with this process
        self._ranks = Ranks()
        self.run.rank = rank_of(environ)
        self.run.price_worker = settings.price_worker
        self.run.price_trainer = settings.price_trainer
        self.served_s: Callable[[], float] = float  # by CPUs of other machines; of none: 0.0
        self._exchanged: list[Exchanged] = []
        self._looks = looks
        self._report_file = _own_file(settings.report_json, self.run.rank)
        self._quiet = settings.quiet or bool(self.run.rank)  # one summary: rank 0's
        self._log.append(
            "settings",
            pid=self._pid,
            report_file=str(self._report_file) if self._report_file else None,
            quiet=self._quiet,
            rank=self.run.rank,
            price_worker=settings.price_worker,
            price_trainer=settings.price_trainer,
        )
        os.register_at_fork(after_in_child=self._let_go)
        if self._report_file is not None or not self._quiet:
            self._start_keeper()

    def loader(
        self, place: str, looks: tuple[object, ...], *, chains: int, reasons: list[str]
    ) -> LoaderRecord:
        """The record of the loader at a place that looks like this; a new one the first time."""
        self._look_at_ranks()
        key = (place, *looks)
        with self._lock:
            record = self._loaders.get(key)
            if record is None:
                number = min(len(self._loaders), MAX_LOADERS - 1)
                record = LoaderRecord(number, place, not reasons, reasons, chains)
                self._loaders[key] = record
                self._log.append(
                    "loader",
                    number=number,
                    place=place,
                    offloaded=not reasons,
                    reasons=reasons,
                    chains=chains,
                )
        return record

    def delivered(self, record: LoaderRecord, sha256: str | None) -> None:
        """A batch was delivered and the record's numbers are new. Nothing in a forked copy."""
        if self._lifeline[1] < 0:
            return
        self._log.put_loader(record)
        if sha256 is not None:
            record.digests.append(sha256)
            self._log.append("digest", number=record.number, sha256=sha256)
        self.run.wall_s = process_age_s()
        self._log.put_run(self.run)
        if self.run.wall_s - self._refreshed_s > REFRESH_S:
            self.refresh()

    def exchanges(self, counts: Exchanged) -> None:
        """A model's gradients may be compressed from now on."""
        self._exchanged.append(counts)
        self._look_at_gradients()

    def waited_s(self) -> float:
        """Of all loaders, until now."""
        return sum(record.wait_s for record in self._loaders.values())

    def settle(self, record: LoaderRecord, reasons: list[str]) -> None:
        """It is known now who makes the batches of a loader without workers."""
        if reasons == record.reasons and record.offloaded is not bool(reasons):
            return
        record.reasons, record.offloaded = reasons, not reasons
        self._log.append(
            "settled", number=record.number, reasons=reasons, offloaded=record.offloaded
        )

    def note(self, record: LoaderRecord, text: str) -> None:
        if text not in record.notes:
            record.notes.append(text)
            self._log.append("note", number=record.number, text=text)

    def refresh(self) -> None:
        """Look at this process's own use."""
        self._look_at_ranks()
        self._refreshed_s = self.run.wall_s = process_age_s()
        self.run.cpu_s = process_cpu_s()
        self.run.away_s = self.served_s()
        self._look_at_gradients()
        for look in self._looks:
            look()
        self.run.peak_rss_nbytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        self._log.put_run(self.run)

    def finish(self) -> None:
        """Write the report. Idempotent; nothing in a forked copy."""
        if os.getpid() != self._pid or self._log.is_done:
            return
        self._look_at_ranks(at_end=True)
        self.refresh()
        self._log.mark_done()
        report = as_json(self.run, list(self._loaders.values()), _how_it_ends())
        publish(report, self._report_file, self._quiet)

    def _look_at_gradients(self) -> None:
        self.run.gradients_wire_nbytes = sum(each.wire_nbytes for each in self._exchanged)
        self.run.gradients_raw_nbytes = sum(each.raw_nbytes for each in self._exchanged)
        schemes = [each.scheme for each in self._exchanged if each.scheme is not None]
        coded = [scheme for scheme in schemes if scheme != "fp32"]
        scheme = next(iter(coded or schemes), None)
        if scheme != self.run.gradients:
            self.run.gradients = scheme
            self._log.append("gradients", scheme=scheme)

    def _look_at_ranks(self, at_end: bool = False) -> None:
        self._ranks.look(at_end)
        if self._ranks.without_stoker != self.run.without_stoker:
            self.run.without_stoker = self._ranks.without_stoker
            self._log.append("ranks", without_stoker=self.run.without_stoker)

    def close(self) -> None:
        """Give the files back; the keeper ends without a report."""
        self._log.mark_done()
        self._let_go()
        os.close(self._lifeline[0])
        self._log.close()

    def _start_keeper(self) -> None:
        """Start the process that writes the report if this one cannot.

        A shell starts it and ends, so that the script has no child that it does not expect.
        """
        keeper = str(Path(__file__).with_name("keeper.py"))
        places = [str(place) for place in _KEEPER_FDS]
        command = [sys.executable, "-I", "-S", keeper, *places, str(self._pid)]
        shell = ["/bin/sh", "-c", '"$@" &', "sh", *command]
        fds: list[int] = []
        try:
            pid_fd = os.pidfd_open(self._pid)
            for fd in (self._lifeline[0], self._log.fd, pid_fd):
                fds.append(fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 20))
            os.close(pid_fd)
            moves = zip(fds, _KEEPER_FDS, strict=True)
            # Signals blocked from its first moment: a SIGTERM to the group shall not reach it.
            shell_pid = os.posix_spawn(
                shell[0],
                shell,
                os.environ,
                file_actions=[(os.POSIX_SPAWN_DUP2, fd, place) for fd, place in moves],
                setsigmask=signal.valid_signals(),
            )
            os.waitpid(shell_pid, 0)
        except OSError as error:
            print(f"stoker: no report if this run is killed: {error}", file=sys.stderr)
        for fd in fds:
            os.close(fd)

    def _let_go(self) -> None:
        """In a forked child: only the trainer may hold the writing end."""
        if self._lifeline[1] >= 0:
            os.close(self._lifeline[1])
            self._lifeline = (self._lifeline[0], -1)


def publish(report: dict[str, Any], file: Path | None, quiet: bool) -> None:
    """Write the report where it was asked for. Problems are told, never raised."""
    if file is not None:
        try:
            part = file.with_name(file.name + ".part")
            part.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
            part.replace(file)
        except OSError as error:
            print(f"stoker: the report was not written: {error}", file=sys.stderr)
    if not quiet and sys.stderr is not None:
        print(summary(report), end="", file=sys.stderr, flush=True)


def _own_file(asked: str | Path | None, rank: int | None) -> Path | None:
    """This process's report: the rank goes before the suffix, a second process appends its pid."""
    if asked is None:
        return None
    file = Path(asked)
    if rank is not None:
        file = file.with_name(f"{file.stem}.{rank}{file.suffix}")
    try:
        os.close(os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
    except FileExistsError:
        return file.with_name(f"{file.name}.{os.getpid()}")
    except OSError as error:
        print(f"stoker: no report can be written: {error}", file=sys.stderr)
        return None
    return file


def _how_it_ends() -> str:
    kind = getattr(sys, "last_type", None)
    return "exit" if kind is None else f"exception {kind.__name__}"
