"""`stoker runs [--json]`: lists the runs that this user's state folder has logs of, the newest last."""

import json
import os
import sys
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import Any

from stoker import config
from stoker.cli.flags import parse
from stoker.errors import ConfigError
from stoker.runs.file import Run, read
from stoker.runs.folder import folder_of, logs_in
from stoker.tables import aligned

USAGE = """\
usage: stoker runs [--json]

List the runs of this user on this machine, the newest last: stoker report NAME shows one.
The logs are files of $XDG_STATE_HOME/stoker/runs (~/.local/state/stoker/runs); the newest 100 are kept.

  --json  one JSON object a line in place of the table

exit codes: 0; 2 wrong flags
"""
_OFF = next(setting for setting in config.SETTINGS if setting.name == "off")
FLAGS = (config.Setting(_OFF.parse, "", "one JSON object a line", "json"),)
COMMAND_CHARS = 60


def main(words: list[str]) -> int:
    """Print the list and return the exit code; see USAGE. Raises ConfigError."""
    flags, rest = parse(words, FLAGS, "runs")
    if flags is None:
        print(USAGE, end="")
        return 0
    if rest:
        raise ConfigError(f"takes no argument: {' '.join(rest)!r}")
    found = [told(run) for run in readable(logs())]
    if _OFF.parse(flags.get("json", "")):
        print("".join(json.dumps(each) + "\n" for each in found), end="")
    elif found:
        print(as_text(found), end="")
    else:
        print("no run has been logged yet: stoker run -- python train.py", file=sys.stderr)
    return 0


def logs() -> list[Path]:
    """Return the logs of this user, the oldest first."""
    folder = folder_of(os.environ)
    return [] if folder is None else logs_in(folder)


def readable(files: Iterable[Path]) -> list[Run]:
    """Return the runs of those logs that can be read."""
    found = []
    for file in files:
        try:
            run = read(file)
        except OSError:
            continue
        if run is not None:
            found.append(run)
    return found


def told(run: Run) -> dict[str, Any]:
    """Return what the list says of a run: of one that lasts, or was lost, as far as its log goes."""
    totals = run.totals()
    return {
        "name": run.name,
        "began_unix_s": run.about["began_unix_s"],
        "command": run.about["command"],
        "folder": run.about["folder"],
        "host": run.about["host"],
        "rank": run.about["rank"],
        "ended": run.report["ended"] if run.report else "" if run.lasts else "lost",
        "wall_s": round(totals.wall_s, 3),
        "num_batches": totals.num_batches,
        "num_samples": totals.num_samples,
        "wait_s": round(totals.wait_s, 3),
    }


def as_text(runs: list[dict[str, Any]]) -> str:
    rows = [["run", "began", "took", "batches", "waited", "ended", "command"]]
    for run in runs:
        command = " ".join(run["command"])
        rows.append(
            [
                run["name"],
                f"{datetime.fromtimestamp(run['began_unix_s']):%Y-%m-%d %H:%M}",
                f"{run['wall_s']:,.1f} s",
                f"{run['num_batches']:,}",
                f"{run['wait_s'] / run['wall_s'] if run['wall_s'] else 0:.0%}",
                run["ended"] or "running",
                command if len(command) <= COMMAND_CHARS else command[: COMMAND_CHARS - 3] + "...",
            ]
        )
    return aligned(rows, right=(2, 3, 4))
