"""Shows a run from the report keeper: second by second it feeds the page, and the scalars for TensorBoard.

Promise: what goes wrong here is told in a line, and neither the run nor its report is any worse for it.
"""

import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from stoker import speak
from stoker.clock import now_s
from stoker.live.feed import Feed, Host, Tick
from stoker.live.host import HostReader
from stoker.live.ranks import RankReader
from stoker.live.server import PageServer
from stoker.reports.metrics import LoaderRecord, RunRecord
from stoker.runs.buckets import Look
from stoker.runs.crew import Crew


class Log(Protocol):
    """A run log, as far as it is read here: `reports.log.RunLog`."""

    def rows(self, numbers: Sequence[int]) -> tuple[RunRecord, list[LoaderRecord]]:
        """Return the numbers of the process, and of loaders."""

    def crew(self) -> Crew:
        """Return what workers were seen to be at."""


class Shown:
    """What is shown of one run. asked: the log's `live`; about: what its log says of the run."""

    def __init__(
        self, asked: Mapping[str, Any], about: dict[str, Any], runs_folder: str | None
    ) -> None:
        self._feed, self._host = Feed(), HostReader()
        self._ranks = None if runs_folder is None else RankReader(Path(runs_folder), about)
        self._scalars = None
        self.server: PageServer | None = None
        if asked["tensorboard"] is not None:
            from stoker.live.scalars import Scalars

            self._scalars = Scalars(Path(asked["tensorboard"]), about)
        if asked["page"] is not None:
            self._serve(asked["page"], _token(asked["token_file"]))

    def _serve(self, address: str, token: str) -> None:
        from stoker.live.metrics import metrics_of

        def metrics() -> tuple[bytes, str] | None:
            return metrics_of(self._feed.state)

        try:
            self.server = PageServer(address, token, self._feed, metrics)
        except OSError as error:
            host, _, port = address.rpartition(":")
            if port == "0":
                raise
            speak.say(f"no page at {address} ({error.strerror}), but at another port:")
            self.server = PageServer(f"{host}:0", token, self._feed, metrics)
        self.server.begin()
        speak.say(f"page: {self.server.url}")

    def take(self, log: Log, lines: Sequence[Mapping[str, Any]], looks: Sequence[Look]) -> None:
        self._feed.take(self._tick(log, lines, looks))
        self._write_scalars()

    def end(
        self, log: Log, lines: Sequence[Mapping[str, Any]], looks: Sequence[Look], ended: str
    ) -> None:
        self._feed.end(ended, self._tick(log, lines, looks))
        self._write_scalars()
        if self._scalars is not None:
            self._scalars.close()

    def _tick(self, log: Log, lines: Sequence[Mapping[str, Any]], looks: Sequence[Look]) -> Tick:
        now = now_s()
        numbers = [
            *self._feed.numbers,
            *(line["number"] for line in lines if line["kind"] == "loader"),
        ]
        run, loaders = log.rows(numbers)
        host = self._host.read() if self.server is not None else Host()
        ranks = [] if self._ranks is None or self.server is None else self._ranks.read()
        return Tick(now, lines, looks, run, loaders, log.crew(), host, ranks)

    def _write_scalars(self) -> None:
        if self._scalars is not None and self._feed.state:
            self._scalars.write(self._feed.state)


def _token(file: str | None) -> str:
    """Return the token that a file holds; a new one without a file. Raises OSError, ValueError for an empty one.

    What it should be is checked before the run (cli/checks/services.py).
    """
    if file is None:
        return secrets.token_urlsafe(18)
    text = Path(file).read_text().strip()
    if not text:
        raise ValueError(f"{file} is empty")
    return text
