"""`stoker status [--cluster ADDRESS] [--json]`: shows a Ray cluster's nodes and the runs on them.

Works from any shell of the cluster. Promise: it changes nothing there, and ends within seconds.
"""

import json
import sys
from typing import Any

from stoker import config, speak
from stoker.cli.flags import parse
from stoker.cli.settings import find
from stoker.errors import ConfigError
from stoker.tables import aligned

USAGE = """\
usage: stoker status [--cluster ADDRESS] [--json]

Show the nodes of a Ray cluster and what each stoker run does there.

  --cluster ADDRESS  auto, HOST:PORT or ray://HOST:PORT [env: STOKER_CLUSTER, default: auto]
  --json             one JSON object in place of the tables

exit codes: 0; 2 wrong flags; 69 no cluster answers, or Ray is not installed
"""
WRONG_USE, NO_CLUSTER = 2, 69
_KNOWN = {setting.name: setting for setting in config.SETTINGS}
CLUSTER, OFF = (_KNOWN[name] for name in ("cluster", "off"))
FLAGS = (CLUSTER, config.Setting(OFF.parse, "", "one JSON object in place of the tables", "json"))
ANSWER_S = 5.0  # what a run may take to answer


def main(words: list[str]) -> int:
    """Print the status and return the exit code; see USAGE. Raises ConfigError."""
    flags, rest = parse(words, FLAGS, "status")
    if flags is None:
        print(USAGE, end="")
        return 0
    if rest:
        raise ConfigError(f"takes no command: {' '.join(rest)!r}")
    wants_json = OFF.parse(flags.pop("json", ""))
    address = find(flags).settings.cluster or "auto"
    if address.startswith("processes:"):
        speak.write("stoker status: processes:N is no cluster that could be asked\n")
        return WRONG_USE
    try:
        from stoker.remote.engines.ray import look_at

        found = look_at(address, ANSWER_S)
    except ImportError:
        from stoker.cli.checks import advice

        speak.write(f"stoker status: needs Ray: {advice(sys.executable, 'cluster')}\n")
        return NO_CLUSTER
    except Exception as error:  # Ray's have no common base
        first = str(error).strip().partition("\n")[0]
        speak.write(f"stoker status: no cluster answers at {address}: {first}\n")
        return NO_CLUSTER
    print(json.dumps(found, indent=1) if wants_json else as_text(found), end="\n" * wants_json)
    return 0


def as_text(found: dict[str, Any]) -> str:
    """Return two tables: nodes, with the workers of all runs on each; runs, with their rates."""
    nodes = [["node", "CPUs", "workers", "batches/s"]]
    for node in found["nodes"]:
        if not node["alive"]:
            continue
        shown = [
            run["nodes"][node["node"]] for run in found["runs"] if node["node"] in run["nodes"]
        ]
        workers = sum(each["workers"] for each in shown)
        rate = sum(each["batches_per_s"] for each in shown)
        nodes.append([node["node"], str(node["cpus"]), str(workers), f"{rate:.1f}"])
    runs = [["run", "trainer", "workers", "wanted", "batches/s", "MB/s"]]
    for run in found["runs"]:
        of_nodes = run["nodes"].values()
        rank = "" if run["rank"] is None else f" rank {run['rank']}"
        runs.append(
            [
                f"{run['script']}{rank}",
                f"{run['trainer']} pid {run['pid']}",
                str(sum(each["workers"] for each in of_nodes)),
                "all" if run["num_wanted"] is None else str(run["num_wanted"]),
                f"{sum(each['batches_per_s'] for each in of_nodes):.1f}",
                f"{sum(each['nbytes_per_s'] for each in of_nodes) / 1e6:.1f}",
            ]
        )
    tables = [aligned(nodes), aligned(runs) if found["runs"] else "no stoker run is here\n"]
    if files := _files(found):
        tables.append(aligned(files))
    return "\n".join(tables)


def _files(found: dict[str, Any]) -> list[list[str]]:
    """Return the rows of what machines have read for mounts; none where no run has any."""
    rows = []
    for run in found["runs"]:
        for told in (run.get("storage"), run.get("storage_away")):
            if told is not None:
                rows.append(_read(told, run["script"]))
    head = ["mount", "run", "MB fetched", "from peers", "from disk", "from memory", "in cache"]
    return [[*head, "requests", "again", "waited s"], *rows] if rows else []


def _read(told: dict[str, Any], script: str) -> list[str]:
    here = told["memory_nbytes"] + told["disk_nbytes"]
    hit = here / max(here + told["remote_nbytes"] + told["peer_nbytes"], 1)
    nbytes = [
        f"{told[name] / 1e6:,.1f}"
        for name in ("remote_nbytes", "peer_nbytes", "disk_nbytes", "memory_nbytes")
    ]
    counts = [f"{told[name]:,.0f}" for name in ("num_requests", "num_retries")]
    where = ", ".join(url for _, url in told["mounts"]) if "mounts" in told else "other machines"
    return [where, script, *nbytes, f"{hit:.0%}", *counts, f"{told['wait_s']:,.1f}"]
