"""Formats the report in at most twelve lines: what waited, what ran where, what to try next.

Pure: a report (docs/report.md) in, text out.
"""

from typing import Any

MAX_LINES = 12
# Below this share of the run there is nothing to gain from faster loading.
IDLE_FRAC = 0.03
_BINARY_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def summary(report: dict[str, Any]) -> str:
    """Return the lines for stderr, each beginning with `stoker: `; ends with a newline."""
    lines = [_head(report), *_loader_lines(report["loaders"]), *_gradients_line(report)]
    lines += [*_cost_line(report), *_advice(report)]
    if len(lines) > MAX_LINES:
        num_left_out = len(lines) - MAX_LINES + 1
        end = len(lines) - len(_advice(report))  # what to do stays
        lines[end - num_left_out : end] = [f"... and {num_left_out} more (--report-json has all)"]
    return "".join(f"stoker: {line}\n" for line in lines)


def _head(report: dict[str, Any]) -> str:
    num_batches = sum(loader["num_batches"] for loader in report["loaders"])
    wait_s = sum(loader["wait_s"] for loader in report["loaders"])
    share = wait_s / report["wall_s"] if report["wall_s"] else 0.0
    of_rank = "" if report["rank"] is None else f"rank {report['rank']}: "
    text = (
        f"{of_rank}{num_batches:,} batches in {report['wall_s']:.1f} s; the training loop waited "
        f"{wait_s:.1f} s for data ({share:.0%}); its process used {report['trainer']['cpu_s']:.1f} CPU s"
    )
    if report["ended"] != "exit":
        text += f"; ended by {report['ended']}"
    return text


def _loader_lines(loaders: list[dict[str, Any]]) -> list[str]:
    return [_loader_line(loader) for loader in loaders]


def _loader_line(loader: dict[str, Any]) -> str:
    counted = f"{loader['num_batches']:,} batches, {loader['num_samples']:,} samples"
    waited = f"waited {loader['wait_s']:.1f} s"
    if not loader["offloaded"]:
        why = loader["reasons"][0] if loader["reasons"] else "asked to"
        return f"{loader['place']}: {counted}, {waited}; left to torch: {why}"
    made = f"{loader['chains']} chains" if loader["chains"] else "made ahead on spare cores"
    text = f"{loader['place']}: {counted}, {waited}; {made}"
    text += f", {readable_nbytes(loader['raw_nbytes'])} delivered"
    if loader["num_away"]:
        wire = readable_nbytes(loader["wire_nbytes"])
        text += f"; {loader['num_away']:,} batches made on other machines, {wire} on the way"
    if loader["num_copied"]:
        text += f"; {loader['num_copied']:,} copied: the script holds more than --memory"
    for note in loader["notes"]:
        text += f"; {note}"
    return text


def _gradients_line(report: dict[str, Any]) -> list[str]:
    told = report["gradients"]
    if told["scheme"] is None:
        return []
    sent, raw = readable_nbytes(told["wire_nbytes"]), readable_nbytes(told["raw_nbytes"])
    return [f"gradients: {told['scheme']}; {sent} sent in place of {raw}"]


def _cost_line(report: dict[str, Any]) -> list[str]:
    """Return a line on how long other machines were used, and what that cost; or nothing."""
    hours, cost = report["workers"]["away_hours"], report["cost"]
    words = [f"other machines: {hours:.2f} CPU-hours"] if hours else []
    named = (("workers", cost["workers"]), ("this machine", cost["trainer"]))
    words += [f"{name} cost {value:.2f}" for name, value in named if value is not None]
    if None not in cost.values():
        words.append(f"{sum(cost.values()):.2f} in all")
    return ["; ".join(words)] if words else []


def _advice(report: dict[str, Any]) -> list[str]:
    workers, lines = report["workers"], []
    if report["ranks_without_stoker"]:
        ranks = ", ".join(map(str, report["ranks_without_stoker"]))
        lines.append(f"ranks without stoker: {ranks}; start their launcher with `stoker run` too")
    if workers["lost"]:
        lines.append(
            f"{_num(workers['lost'], 'worker')} died; recomputed at most "
            f"{_num(workers['replayed'], 'batch', 'batches')}; none was lost or given twice"
        )
    wait_s = sum(loader["wait_s"] for loader in report["loaders"])
    if wait_s < IDLE_FRAC * report["wall_s"]:
        lines.append("data loading was not the bottleneck: the training step is")
        return lines
    for loader in report["loaders"]:
        if loader["offloaded"] and workers["slots"] > loader["chains"] > 0:
            lines.append(
                f"{loader['place']}: {_num(loader['chains'], 'worker')}, where {workers['slots']} could "
                f"run; try --chains auto (as num_workers={workers['slots']}: random augmentation differs)"
            )
            break
    return lines


def _num(num: int, one: str, more: str = "") -> str:
    return f"{num} {one if num == 1 else more or one + 's'}"


def readable_nbytes(nbytes: float) -> str:
    unit = 0
    while nbytes >= 1024 and unit < len(_BINARY_UNITS) - 1:
        nbytes /= 1024
        unit += 1
    return f"{nbytes:.1f} {_BINARY_UNITS[unit]}" if unit else f"{nbytes:.0f} B"
