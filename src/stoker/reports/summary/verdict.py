"""Says in one line what limited a run, and the one thing to try next with its price.

Names no speed that the next thing would bring: estimates from one run were up to twice what came
(1.9x was told where 1.2x came), for cores that are waiting are not cores that are free.
Pure: a report (docs/report.md) in, text out.
"""

from typing import Any

from stoker.reports.metrics import KEEPS_NUMBER, ONLY_OWN
from stoker.stalls.split import lost_s

# Below this share of the run there is nothing to gain from faster loading.
IDLE_FRAC = 0.03
LIMIT_FRAC = 0.2  # from here on data is called the limit
# Of a core, that other threads of the training process may use while it waits. Beyond it they spin.
SPIN_CORES = 0.25
SEEN_S = 0.02  # of waits that were looked at, before anything is said about them

SPINNING = (
    "OpenMP threads of the training process spin on the workers' cores: try OMP_NUM_THREADS=1"
)
CLUSTER = "more CPUs: --cluster (needs Ray)"
NOT_JOINED = "no other machine had joined yet; longer runs have them (stoker status)"
OTHER_DRAWS = "random augmentation will differ"
WITHOUT_WORKERS = "num_workers=0"


def verdict(report: dict[str, Any]) -> str:
    """Return the line; empty for a run without a batch."""
    loaders, wall_s = report["loaders"], report["wall_s"]
    if report["ranks_without_stoker"]:
        ranks = ", ".join(map(str, report["ranks_without_stoker"]))
        return f"ranks without stoker: {ranks}; start their launcher with `stoker run` too"
    wait_s = sum(map(waited_s, loaders))
    if not wall_s or not any(loader["num_batches"] for loader in loaders):
        return ""
    frac = min(1.0, wait_s / wall_s)
    slowest = max(loaders, key=waited_s)
    if frac < IDLE_FRAC:
        spins = slowest["offloaded"] and _spins(report["trainer"])
        return f"the model is the limit: {frac:.0%} waiting{f'; {SPINNING}' if spins else ''}"
    head = f"data is the limit: {frac:.0%} waiting"
    if frac < LIMIT_FRAC:
        head = f"waiting for data takes {frac:.0%} of the time"
    advice = _next(report, slowest)
    if frac < LIMIT_FRAC and advice.endswith(CLUSTER):
        return head  # so little is not worth other machines
    return f"{head}; {advice}"


def waited_s(loader: dict[str, Any]) -> float:
    """Return how long training waited for a loader, but for what the GPU computed meanwhile."""
    return lost_s(loader["wait_s"], loader["seen"].get("hidden_s", 0.0))


def _next(report: dict[str, Any], loader: dict[str, Any]) -> str:
    """Return what to try for the loader that was waited for most."""
    if loader["offloaded"] and _spins(report["trainer"]):
        return SPINNING  # before all else: while cores are taken, what else is slow cannot be told
    has_workers = loader["offloaded"] or WITHOUT_WORKERS not in "".join(loader["reasons"])
    if 2 * loader["first_wait_s"] > waited_s(loader) and has_workers:
        return _for_starts(loader)
    if 2 * loader["num_copied"] > loader["num_batches"]:
        return "the script holds more batches than --memory allows: raise it, or keep fewer"
    return _for_workers(report, loader)


def _for_starts(loader: dict[str, Any]) -> str:
    first_s = f"{loader['first_wait_s']:.1f} s"
    if loader["num_iters"] > 1:
        return f"{first_s} of it while workers start: try persistent_workers=True"
    return f"{first_s} of it for the first batch, while workers start; longer runs wait less"


def _for_workers(report: dict[str, Any], loader: dict[str, Any]) -> str:
    cores = report["trainer"]["cores"]
    place = loader["place"]
    if not loader["offloaded"]:
        if _why(loader).startswith("--off"):
            return "try it without --off"
        if not _may_have_workers(loader):
            return f"nothing that stoker knows of makes {place} faster"
        if cores <= 1 and not _has_others(report):
            return f"one core does it all; {CLUSTER}"
        num = max(cores, 2)
        return f"--chains {num} gives it {num} workers; {OTHER_DRAWS}"
    if _has_others(report) and report["workers"]["away_hours"]:
        return "try more workers on other machines (--workers)"
    if 0 < loader["chains"] < cores and (why := _why_only_own(loader)):
        if why.endswith(KEEPS_NUMBER):
            return (
                f"a larger num_workers would use {_all(cores)}; samples are then shared otherwise"
            )
        return f"--chains auto uses {_all(cores)}; {OTHER_DRAWS}"
    more = NOT_JOINED if _has_others(report) else CLUSTER
    return f"{_all(cores)} are at work; {more}"


def _has_others(report: dict[str, Any]) -> bool:
    """Whether `--cluster` asked for other machines, and not for processes of this one."""
    return bool(report["cluster"]) and not report["cluster"].startswith("processes:")


def _why_only_own(loader: dict[str, Any]) -> str:
    """Return why only the workers that the script asks for make its batches; "" if others do too."""
    return next((note for note in loader["notes"] if note.startswith(ONLY_OWN)), "")


def _all(cores: int) -> str:
    return "both cores" if cores == 2 else f"all {cores} cores"


def _may_have_workers(loader: dict[str, Any]) -> bool:
    why = _why(loader)
    return why.startswith(WITHOUT_WORKERS) and not why.endswith(_NOTHING_TO_TRY)


_NOTHING_TO_TRY = (
    "handing it over",
    "there is nothing to gain",
    "to gain from",
    "the dataset is iterable",
    "is a DataPipe",
    "lies in the training process",
)


def _why(loader: dict[str, Any]) -> str:
    return loader["reasons"][0] if loader["reasons"] else ""


def _spins(trainer: dict[str, Any]) -> bool:
    """Whether threads of the training process use a good part of a core while it waits."""
    seen_s = trainer["seen_wait_s"]
    return bool(seen_s > SEEN_S and trainer["seen_wait_cpu_s"] > SPIN_CORES * seen_s)
