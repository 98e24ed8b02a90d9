"""What a measurement says: medians against bars, the machine it ran on, and where it is kept.

Promise: one JSON file per figure, day and host in benchmarks/results, with both sides' raw numbers.
"""

import json
import os
import platform
import socket
import statistics
import subprocess
from dataclasses import replace
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from figures import Check, Pair

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"


def verdict(check: Check, pairs: list[Pair], label: str = "") -> dict[str, Any]:
    """A check's number in every pair, their median and spread, and whether the bar is met. Pure."""
    values = [check.of(pair) for pair in pairs if check.covers(pair)]
    median = statistics.median(values)
    return {
        "what": label or check.what,
        "key": check.key,
        "how": check.how,
        "unit": check.unit,
        "bar": check.bar_text(),
        "values": values,
        "median": median,
        "min": min(values),
        "max": max(values),
        "passed": check.is_met(median),
    }


def verdicts_by_key(each: Check, pairs: list[Pair]) -> list[dict[str, Any]]:
    """`each` applied to every key that was measured, the worst first. Pure."""
    keys = dict.fromkeys(key for pair in pairs for key in pair["plain"])
    found = [verdict(replace(each, key=key), pairs, label=key) for key in keys]
    return sorted(found, key=lambda one: one["median"])


def number(one: dict[str, Any], key: str) -> str:
    """Milliseconds whole, where they are many."""
    is_coarse = one["unit"] == " ms" and one["median"] >= 10
    return f"{one[key]:.{0 if is_coarse else 2}f}"


def one_text(one: dict[str, Any]) -> str:
    """`13.1x torch (bar >= 12x; 12.8..13.4)`."""
    low, median, high = (number(one, key) for key in ("min", "median", "max"))
    return f"{median}{one['unit']} {one['what']} (bar {one['bar']}; {low}..{high})"


def summary(result: dict[str, Any]) -> str:
    """The last line of a benchmark: every median with bar and spread, the machine, the verdict."""
    checks = result["checks"]
    shown = checks[:1] if result["figure"] == "many-loaders" else checks
    parts = [one_text(one) for one in shown]
    if len(shown) < len(checks):
        num_met = sum(one["passed"] for one in checks)
        parts = [f"{num_met} of {len(checks)} loaders at their bar; worst {parts[0]}"]
    machine, mode = result["machine"], " --quick" if result["quick"] else ""
    where = f"{machine['cpu']}, {machine['num_cores']} cores, {result['date'][:10]}"
    tail = f"{result['num_pairs']} pairs{mode} | {where}, torch {result['torch']}"
    word = "PASS" if result["passed"] else "MISS"
    return f"{result['figure']}: {'; '.join(parts)} | {tail} | {word}"


def cpu_model() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def gpus() -> list[str]:
    """Names of this machine's GPUs, as their driver's tool gives them."""
    ask = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    try:
        return subprocess.run(ask, capture_output=True, text=True, check=True).stdout.splitlines()
    except (OSError, subprocess.CalledProcessError):  # no such tool; no driver, or no GPU
        return []


def version_of(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"


def commit() -> str:
    """The commit that was measured, with + where the files differ; empty outside a checkout."""
    git = ["git", "-C", str(HERE), "describe", "--always", "--dirty=+", "--abbrev=12"]
    try:
        return subprocess.run(git, capture_output=True, text=True, check=False).stdout.strip()
    except FileNotFoundError:
        return ""


def circumstances() -> dict[str, Any]:
    """Everything about here and now that a figure depends on."""
    pages, page_nbytes = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "host": socket.gethostname(),
        "machine": {
            "cpu": cpu_model(),
            "num_cores": len(os.sched_getaffinity(0)),
            "memory_nbytes": pages * page_nbytes,
            "kernel": platform.release(),
            "load_1min": os.getloadavg()[0],
            "gpus": gpus(),
        },
        "python": platform.python_version(),
        "torch": version_of("torch"),
        "stoker": version_of("stoker"),
        "commit": commit(),
    }


def write(result: dict[str, Any]) -> Path:
    """Keep a result; a later one of the same day and host takes its place."""
    quick = "-quick" if result["quick"] else ""
    path = RESULTS / result["figure"] / f"{result['date'][:10]}-{result['host']}{quick}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=1) + "\n")
    return path


def newest(figure: str) -> dict[str, Any] | None:
    """The newest full result of a figure, whatever the host; None if there is none."""
    found = [json.loads(path.read_text()) for path in (RESULTS / figure).glob("*.json")]
    full = [result for result in found if not result["quick"]]
    return max(full, key=lambda result: result["date"], default=None)
