"""Shows the run so far as a frozen value, which a notebook draws as a table.

Pure but for `report`, which reads the counts of this process.
"""

import html
import json
import sys
from dataclasses import dataclass
from typing import Any

from stoker.reports.metrics import RunRecord, as_json
from stoker.reports.summary import summary
from stoker.tables import counted

RUNNING = "exit"  # a report that has not ended is told like one that ended by itself
_COUNTS = ("num_batches", "num_samples", "num_iters", "wait_s", "first_wait_s", "busy_s", "wire_nbytes",
           "raw_nbytes", "num_copied", "num_away")  # fmt: skip


@dataclass(frozen=True, slots=True)
class LoaderReport:
    """One loader. reasons: why torch makes its batches, if it does; num_workers: 0 also where
    processes on the other cores stand in; seconds are of the training loop."""

    place: str
    offloaded: bool
    reasons: tuple[str, ...]
    num_workers: int
    num_batches: int
    num_samples: int
    wait_s: float
    busy_s: float


@dataclass(frozen=True, slots=True)
class Report:
    """A run up to one moment; later batches do not change it. text: the summary's lines; json: the
    whole report, as docs/report.md describes it."""

    wall_s: float
    wait_s: float
    num_batches: int
    loaders: tuple[LoaderReport, ...]
    text: str
    json: str

    def __repr__(self) -> str:
        return self.text.removesuffix("\n")

    def _repr_html_(self) -> str:
        head, *_, verdict = [line.removeprefix("stoker: ") for line in self.text.splitlines()]
        rows = "".join(_row(loader) for loader in self.loaders)
        last = f"<p>{html.escape(verdict)}</p>" if verdict != head else ""
        return (
            f"<div><p><b>stoker</b>: {html.escape(head)}</p><table><thead><tr><th>loader</th>"
            "<th>batches</th><th>samples</th><th>waited, s</th><th>made by</th></tr></thead>"
            f"<tbody>{rows}</tbody></table>{last}</div>"
        )


def _row(loader: LoaderReport) -> str:
    if not loader.offloaded:
        by = f"plain PyTorch: {loader.reasons[0]}" if loader.reasons else "plain PyTorch"
    elif loader.num_workers:
        by = counted(loader.num_workers, "worker")
    else:
        by = "processes on the other cores"
    cells = (loader.place, f"{loader.num_batches:,}", f"{loader.num_samples:,}",
             f"{loader.wait_s:.2f}", by)  # fmt: skip
    return f"<tr>{''.join(f'<td>{html.escape(cell)}</td>' for cell in cells)}</tr>"


def report() -> Report:
    """Return the run of this process so far; one without batches if no loader was iterated."""
    return frozen(current())


def current() -> dict[str, Any]:
    """Return the report as it stands, as docs/report.md describes it."""
    run = sys.modules.get("stoker.intercept.run")
    if run is None or not run.has_recorder():
        return as_json(RunRecord(), [], RUNNING)
    from stoker.intercept.meter import settle_all

    settle_all()
    found: dict[str, Any] = run.recorder().snapshot(RUNNING)
    return found


def frozen(found: dict[str, Any]) -> Report:
    loaders = tuple(
        LoaderReport(
            place=each["place"],
            offloaded=each["offloaded"],
            reasons=tuple(each["reasons"]),
            num_workers=each["chains"],
            num_batches=each["num_batches"],
            num_samples=each["num_samples"],
            wait_s=each["wait_s"],
            busy_s=each["busy_s"],
        )
        for each in found["loaders"]
    )
    return Report(
        wall_s=found["wall_s"],
        wait_s=sum(loader.wait_s for loader in loaders),
        num_batches=sum(loader.num_batches for loader in loaders),
        loaders=loaders,
        text=summary(found),
        json=json.dumps(found),
    )


def since(before: dict[str, Any], after: dict[str, Any], wall_s: float) -> dict[str, Any]:
    """Return a report of what came between two reports of one run, within wall_s seconds; loaders
    that gave no batch meanwhile are left out."""
    loaders = []
    for i, each in enumerate(after["loaders"]):
        known = before["loaders"][i] if i < len(before["loaders"]) else {}
        if any(known.get(name, 0) > each[name] for name in _COUNTS):  # a run that was begun anew
            known = {}
        grown = {name: each[name] - known.get(name, 0) for name in _COUNTS}
        if grown["num_batches"]:
            loaders.append({**each, **grown})
    trainer, workers = dict(after["trainer"]), dict(after["workers"])
    for name in ("cpu_s", "seen_wait_s", "seen_wait_cpu_s"):
        trainer[name] -= before["trainer"][name]
    for name in ("lost", "replayed", "away_hours"):
        workers[name] -= before["workers"][name]
    none = {"workers": None, "trainer": None}
    return {
        **after, "loaders": loaders, "trainer": trainer, "workers": workers, "wall_s": wall_s, "cost": none
    }  # fmt: skip
