"""Shows a run from the report keeper: second by second it feeds the page, and the scalars for TensorBoard.

Promise: what goes wrong here is told in a line, and neither the run nor its report is any worse for it, nor is the page for
the scalars' sake.
"""

import errno
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from stoker import speak
from stoker.clock import now_s
from stoker.live.address import as_announced, token_of
from stoker.live.feed import Feed, Host, Tick
from stoker.live.host import HostReader, RunMemory
from stoker.live.metrics import metrics_of
from stoker.live.ranks import RankReader
from stoker.live.server import PageServer
from stoker.reports.metrics import LoaderRecord, RunRecord
from stoker.runs.buckets import Look
from stoker.runs.crew import Crew

if TYPE_CHECKING:  # TensorBoard's package may not be installed
    from stoker.live.scalars import Scalars

RANKS_EVERY_S = 5.0  # logs of other ranks are read, while somebody has the page open

Lines = Sequence[Mapping[str, Any]]


class Log(Protocol):
    """A run log, as far as it is read here: `reports.log.RunLog`."""

    def rows(self, numbers: Sequence[int]) -> tuple[RunRecord, list[LoaderRecord]]:
        """Return the numbers of the process, and of loaders."""

    def crew(self) -> Crew:
        """Return what workers were seen to be at."""


class Shown:
    """Shows one run. asked: the log's `live`; about: what its log says of the run."""

    def __init__(
        self,
        asked: Mapping[str, Any],
        about: dict[str, Any],
        runs_folder: str | None,
        memory: RunMemory,
    ) -> None:
        self._feed = Feed()
        self._scalars: Scalars | None = None
        self._server: PageServer | None = None
        self._host: HostReader | None = None
        self._memory = memory
        self._ranks = None if runs_folder is None else RankReader(Path(runs_folder), about)
        self._rank_rows: list[dict[str, Any]] = []
        self._ranks_s = 0.0
        if asked["tensorboard"] is not None:
            self._write_to(asked["tensorboard"], about)
        if asked["page"] is not None:
            try:
                self._serve(asked["page"], asked["token_file"], asked["announced"])
            except Exception as error:  # no such address, no such file
                _tell("there is no page", error)

    def take(self, log: Log, lines: Lines, looks: Sequence[Look]) -> None:
        """Show what is new."""
        self._take(log, lines, looks, None)

    def end(self, log: Log, lines: Lines, looks: Sequence[Look], ended: str) -> None:
        """Show the rest, and how the run ended."""
        self._take(log, lines, looks, ended)

    @property
    def is_looked_at(self) -> bool:
        """Whether somebody has the page open, or Prometheus has not heard of the end."""
        return self._server is not None and self._server.is_looked_at

    def _take(self, log: Log, lines: Lines, looks: Sequence[Look], ended: str | None) -> None:
        if self._server is None and self._scalars is None:
            return
        try:
            tick = self._tick(log, lines, looks)
            self._feed.take(tick, ended)
            if ended is not None and self._server is not None:
                self._server.has_ended = True
        except Exception as error:  # ours: a page that stands still would be believed
            _tell("the run is not shown any more", error)
            self._give_up_page()
            self._scalars = None
            return
        if self._server is not None:
            self._server.end_stale()
        if self._scalars is not None and self._feed.state:
            try:
                self._scalars.write(self._feed.state)
                if ended is not None:
                    self._scalars.close()
            except Exception as error:  # a full disk
                _tell("no more scalars are written", error)
                self._scalars = None

    def _write_to(self, folder: str, about: dict[str, Any]) -> None:
        try:
            from stoker.live.scalars import Scalars

            self._scalars = Scalars(Path(folder), about)
        except Exception as error:  # a library that is missing, a folder that may not be written
            _tell("no scalars are written", error)

    def _serve(self, asked: str, token_file: str | None, announced: str) -> None:
        """announced: the address that was printed before the command started, if any."""
        if announced:
            address, token = as_announced(announced, asked)
        else:
            address, token = asked, token_of(token_file)

        def metrics() -> tuple[bytes, str] | None:
            return metrics_of(self._feed.state)

        try:
            server = PageServer(address, token, self._feed, metrics)
        except OSError as error:
            if error.errno not in (errno.EADDRINUSE, errno.EACCES) or address.endswith(":0"):
                raise
            if not asked.endswith(":0"):
                speak.say(f"{address} cannot be had: {error.strerror}")
            server = PageServer(f"{address.rpartition(':')[0]}:0", token, self._feed, metrics)
        self._server, self._host = server, HostReader()
        server.begin()
        if server.url != announced:
            speak.say(f"page: {server.url}")

    def _give_up_page(self) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def _tick(self, log: Log, lines: Lines, looks: Sequence[Look]) -> Tick:
        now = now_s()
        new = (line["number"] for line in lines if line["kind"] == "loader")
        run, loaders = log.rows([*self._feed.numbers, *new])
        if self._ranks is not None and self.is_looked_at and now - self._ranks_s >= RANKS_EVERY_S:
            self._ranks_s, self._rank_rows = now, self._ranks.read()
        host = Host()
        if self._host is not None:
            trainer_nbytes, others_nbytes = self._memory.read()
            host = self._host.read()._replace(
                trainer_nbytes=trainer_nbytes, others_nbytes=others_nbytes
            )
        return Tick(now, lines, looks, run, loaders, log.crew(), host, self._rank_rows)


def _tell(without: str, error: Exception) -> None:
    speak.say(f"{without}: {type(error).__name__}: {error}")
