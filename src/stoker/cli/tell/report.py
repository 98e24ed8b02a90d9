"""`stoker report [RUN [RUN]]`: shows a run from its log, or compares two: as a page, as JSON or as CSV."""

import csv
import io
import json
import sys
from pathlib import Path
from typing import Any

from stoker import config, speak
from stoker.cli.flags import parse
from stoker.cli.tell.runs import logs, readable, told
from stoker.errors import ConfigError
from stoker.runs.buckets import Row, Slow
from stoker.runs.file import Run, about_of, read
from stoker.stalls.split import Seen

USAGE = """\
usage: stoker report [--html FILE] [--json | --csv] [RUN [RUN]]

Write a page on a run from its log, or on two of which the second is compared with the first.
RUN is a name that stoker runs lists, or the beginning of one; without it: the newest run.
A page on one run compares it with the newest of the same command under stoker run --off.

  --html FILE  where the page goes to; default: stoker-report.html
  --json       on stdout: the run, its spans of time, the steps' times and the report
  --csv        on stdout: a line a span of time and loader

exit codes: 0; 1 the page cannot be written; 2 wrong flags, or no such run
"""
NOT_WRITTEN = 1
_KNOWN = {setting.name: setting for setting in config.SETTINGS}
_OFF, _PATH = _KNOWN["off"], _KNOWN["report_json"]
FLAGS = (
    config.Setting(_PATH.parse, "FILE", "where the page goes to", "html"),
    config.Setting(_OFF.parse, "", "on stdout: all that is known", "json"),
    config.Setting(_OFF.parse, "", "on stdout: a line a span of time and loader", "csv"),
)


def main(words: list[str]) -> int:
    """Write what is asked for and return the exit code; see USAGE. Raises ConfigError."""
    flags, rest = parse(words, FLAGS, "report")
    if flags is None:
        print(USAGE, end="")
        return 0
    given = {flag.name: flag.parse(flags[flag.name]) for flag in FLAGS if flag.name in flags}
    if len(given) > 1:
        raise ConfigError("give one of --html, --json and --csv")
    runs = chosen(rest)
    if given.get("json"):
        found = [as_json(run) for run in runs]
        print(json.dumps(found[0] if len(found) == 1 else found, indent=1))
    elif given.get("csv"):
        sys.stdout.write(as_csv(runs))
    else:
        before = plain_of(runs[0], logs()) if len(runs) == 1 else None
        return _write_page(runs, before, Path(given.get("html", "stoker-report.html")))
    return 0


def chosen(names: list[str]) -> list[Run]:
    """Return the runs that these names mean. Raises ConfigError."""
    files = logs()
    if not files:
        raise ConfigError("no run has been logged yet: stoker run -- python train.py")
    if len(names) > 2:
        raise ConfigError(f"takes two runs at most: {' '.join(names)!r}")
    wanted = [of_name(files, name) for name in names] or files[-1:]
    runs = readable(wanted)
    if len(runs) < len(wanted):
        raise ConfigError(f"no log can be read in {' or '.join(map(str, wanted))}")
    return runs


def of_name(files: list[Path], name: str) -> Path:
    found = [file for file in files if file.stem.startswith(name)]
    exact = [file for file in found if file.stem == name]
    if len(exact or found) != 1:
        how = f"{len(found)} runs begin with" if found else "no run begins with"
        raise ConfigError(f"{how} {name!r}; stoker runs lists them")
    return (exact or found)[0]


def as_json(run: Run) -> dict[str, Any]:
    """Return all that a run's log holds. Seconds are from the run's beginning on."""
    return {
        **told(run),
        "about": run.about,
        "spans": [
            {"at_s": span.at_s, "long_s": span.long_s, "loaders": [_named(row) for row in span.rows]}
            for span in run.spans
        ],
        "steps": run.steps,
        "slowest": [_named(slow) for slow in run.slowest],
        "report": run.report,
        "workers_memory_nbytes": run.memory,
    }  # fmt: skip


def _named(row: Row | Slow) -> dict[str, Any]:
    return row._asdict() | {"seen": row.seen._asdict()}


def as_csv(runs: list[Run]) -> str:
    places = {run.name: run.names for run in runs}
    out = io.StringIO()
    lines = csv.writer(out, lineterminator="\n")
    heads = ("num_batches", "num_samples", "wait_s", "busy_s", "longest_s")
    lines.writerow(("run", "at_s", "long_s", "loader", *heads, *Seen._fields))
    for run in runs:
        for span in run.spans:
            for row in span.rows:
                place = places[run.name].get(row.number, "")
                lines.writerow((run.name, span.at_s, span.long_s, place, *row[1:-1], *row.seen))
    return out.getvalue()


def plain_of(run: Run, files: list[Path]) -> Run | None:
    """Return the newest run of the same command, in the same folder, as plain PyTorch (--off); None if there is none, or
    the run is one itself."""
    if run.about["settings"].get("off"):
        return None
    for file in reversed(files):
        about = about_of(file)
        same = about is not None and all(
            about[key] == run.about[key] for key in ("command", "folder", "host", "rank")
        )
        if same and about is not None and about["settings"].get("off"):
            found = read(file)
            if found is not None and found.spans:
                return found
    return None


def _write_page(runs: list[Run], before: Run | None, file: Path) -> int:
    from stoker.cli.tell.page import page_of

    try:
        file.write_text(page_of(runs, before))
    except OSError as error:
        speak.say(f"the page was not written: {error}")
        return NOT_WRITTEN
    print(file)
    return 0
