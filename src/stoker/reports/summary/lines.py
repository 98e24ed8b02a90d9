"""Formats the report as lines: how long training waited, who made the batches, what went wrong.

Pure: a report (docs/report.md) in, text out.
"""

import math
from typing import Any

from stoker.reports.metrics import DECODED, ONLY_OWN, names_of
from stoker.reports.summary.verdict import verdict, waited_s
from stoker.tables import counted

MAX_LINES = 5
FULL_FRAC = 0.9  # of the memory for remembered samples: the last one found no room
_BINARY_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def summary(report: dict[str, Any]) -> str:
    """Return the lines for stderr, each beginning with `stoker: `; ends with a newline."""
    names = names_of(report["loaders"])
    loaders = [{**each, "place": name} for each, name in zip(report["loaders"], names, strict=True)]
    report = {**report, "loaders": loaders}
    told = [
        *_losses(report),
        *_remembered(report),
        *_fast(report),
        *_storage(report),
        *_gradients(report),
        *_cost(report),
    ]
    events = "; ".join(told)
    ends = [line for line in (events, verdict(report)) if line]
    lines = _loader_lines(loaders, MAX_LINES - 1 - len(ends))
    return "".join(f"stoker: {line}\n" for line in [_head(report), *lines, *ends])


def _head(report: dict[str, Any]) -> str:
    loaders, wall_s = report["loaders"], report["wall_s"]
    num_batches = sum(loader["num_batches"] for loader in loaders)
    wait_s = sum(map(waited_s, loaders))
    of_rank = "" if report["rank"] is None else f"rank {report['rank']}: "
    text = f"{of_rank}{counted(num_batches, 'batch', 'batches')} in {wall_s:.1f} s"
    text += f"; training waited {wait_s:.1f} s for data ({wait_s / wall_s if wall_s else 0:.0%})"
    if report["ended"] != "exit":
        text += f"; ended by {report['ended']}"
    return text


def _loader_lines(loaders: list[dict[str, Any]], at_most: int) -> list[str]:
    """Return a line for each loader; of too many, for those that were waited for most."""
    if len(loaders) <= at_most:
        return [_loader_line(loader) for loader in loaders]
    numbers = sorted(range(len(loaders)), key=lambda i: -waited_s(loaders[i]))
    kept, rest = numbers[: at_most - 1], numbers[at_most - 1 :]
    num_batches = counted(sum(loaders[i]["num_batches"] for i in rest), "batch", "batches")
    return [
        *(_loader_line(loaders[i]) for i in sorted(kept)),
        f"{len(rest)} more loaders: {num_batches} (--report-json FILE lists all)",
    ]


def _loader_line(loader: dict[str, Any]) -> str:
    text = f"{loader['place']}: {counted(loader['num_batches'], 'batch', 'batches')}"
    if not loader["offloaded"]:
        why = loader["reasons"][0] if loader["reasons"] else "asked to"
        text += f" by plain PyTorch: {why}"
    elif loader["chains"]:
        text += f" by {counted(loader['chains'], 'worker')}"
    else:
        text += " by processes on the other cores"
    if loader["num_away"]:
        text += (
            f", {loader['num_away']:,} of them on other machines "
            f"({readable_nbytes(loader['wire_nbytes'])} received)"
        )
    if loader["num_copied"]:
        text += f"; {loader['num_copied']:,} were copied: the script holds more than --memory"
    told = [note for note in loader["notes"] if not note.startswith(ONLY_OWN)]
    return "; ".join([text, *told])


def _losses(report: dict[str, Any]) -> list[str]:
    lost, replayed = report["workers"]["lost"], report["workers"]["replayed"]
    if not lost:
        return []
    return [
        f"{counted(lost, 'worker')} died; recomputed at most "
        f"{counted(replayed, 'batch', 'batches')}; none was lost or given twice"
    ]


def _remembered(report: dict[str, Any]) -> list[str]:
    """Return how many samples were not made again, what more memory would bring, and what differed."""
    cache = report["cache"]
    if cache is None:
        return []
    places = cache["places"]
    words, disk = [], cache["disk"]
    served = [
        counted(num, what)
        for what, are_files in (("sample", False), ("decoded file", True))
        if (num := _num_served(places, are_files))
    ]
    if served:
        saved_s = sum(place["saved_s"] for place in places)
        held = readable_nbytes(cache["used_nbytes"])
        if disk is not None and disk["used_nbytes"]:
            held += f" in memory and {readable_nbytes(disk['used_nbytes'])} on disk"
        if cache["away_nbytes"]:
            held += f" here, {readable_nbytes(cache['away_nbytes'])} on other machines"
        text = f"{' and '.join(served)} came from what is remembered ({held})"
        if saved_s >= 0.5:
            text += f", {saved_s:,.0f} s of work saved"
        words.append(text + _about_room(cache))
    if disk is not None and disk["why"]:
        words.append(f"nothing more is remembered on disk: {disk['why']}")
    words += [
        f"{place['place']}: {place['why']}; nothing of it is remembered any more"
        for place in places
        if place["num_differed"]
    ]
    return words


def _num_served(places: list[dict[str, Any]], are_files: bool) -> int:
    return sum(
        max(0, place["num_hits"] - place["num_checked"])  # one that differed was no hit
        for place in places
        if (place["depth"] == DECODED) is are_files
    )


def _about_room(cache: dict[str, Any]) -> str:
    """Say how much memory would hold all samples, if this did not."""
    serving = [place for place in cache["places"] if place["phase"] == "serving"]
    wanted_nbytes = sum(
        place["stored_nbytes"] * place["num_samples"] / place["num_stored"]
        for place in serving
        if place["num_stored"]
    )
    is_full = cache["used_nbytes"] > FULL_FRAC * cache["budget_nbytes"]
    if not is_full or wanted_nbytes <= cache["budget_nbytes"]:
        return ""
    wanted_gib = math.ceil(wanted_nbytes * cache["num_sharing"] / (1 << 30))
    return f" (--cache-memory {wanted_gib}G would hold all of them)"


def _fast(report: dict[str, Any]) -> list[str]:
    """Return which faster ways were given up because a result differed."""
    return [
        f"{place['place']}: {place['why']}; made as without stoker since then"
        for place in report.get("fast") or ()
        if place["why"] and place["num_made"]
    ]


def _storage(report: dict[str, Any]) -> list[str]:
    """Return what was read from where for the run's mounts, and how long that was waited for."""
    told = report.get("storage")
    if told is None:
        return []
    return [*_storage_here(told), *_storage_away(told.get("away"))]


def _storage_here(told: dict[str, Any]) -> list[str]:
    if not told["mounts"]:
        return []
    urls = [url for _, url in told["mounts"]]
    where = urls[0] if len(urls) == 1 else f"{len(urls)} URLs"
    text = f"{readable_nbytes(told['remote_nbytes'])} read from {where}"
    if told["peer_nbytes"]:
        text += f", {readable_nbytes(told['peer_nbytes'])} from other machines"
    if here := told["memory_nbytes"] + told["disk_nbytes"]:
        text += f", {readable_nbytes(here)} found in its cache"
    if told["num_retries"]:
        text += f", {counted(told['num_retries'], 'request')} tried again"
    return [f"{text}; workers waited {told['wait_s']:,.1f} s for it, added up"]


def _storage_away(told: dict[str, Any] | None) -> list[str]:
    if told is None:
        return []
    text = f"other machines: {readable_nbytes(told['remote_nbytes'])} read"
    if told["peer_nbytes"]:
        text += f", {readable_nbytes(told['peer_nbytes'])} from each other"
    if here := told["memory_nbytes"] + told["disk_nbytes"]:
        text += f", {readable_nbytes(here)} found in their caches"
    return [f"{text}; workers waited {told['wait_s']:,.1f} s for it, added up"]


def _gradients(report: dict[str, Any]) -> list[str]:
    told = report["gradients"]
    if told["scheme"] is None:
        return []
    sent, raw = readable_nbytes(told["wire_nbytes"]), readable_nbytes(told["raw_nbytes"])
    return [f"gradients: {told['scheme']}, {sent} sent in place of {raw}"]


def _cost(report: dict[str, Any]) -> list[str]:
    """Return how long other machines were used, and what that cost; or nothing."""
    hours, cost = report["workers"]["away_hours"], report["cost"]
    words = [f"other machines: {hours:.2f} CPU-hours"] if hours else []
    if sent := report["workers"].get("files_sent_nbytes"):
        words.append(f"{readable_nbytes(sent)} of files sent to them")
    named = (("workers", cost["workers"]), ("this machine", cost["trainer"]))
    words += [f"{name} cost {value:.2f}" for name, value in named if value is not None]
    if None not in cost.values():
        words.append(f"{sum(cost.values()):.2f} in all")
    return [", ".join(words)] if words else []


def readable_nbytes(nbytes: float) -> str:
    unit = 0
    while nbytes >= 1024 and unit < len(_BINARY_UNITS) - 1:
        nbytes /= 1024
        unit += 1
    return f"{nbytes:.1f} {_BINARY_UNITS[unit]}" if unit else f"{nbytes:.0f} B"
