"""Write the newest results into docs/benchmarks.md (all of them), README.md (three rows) and the plot.

Promise: no figure in them is typed by hand; with --check nothing is written and the exit code
is 1 where one is not what the results say. Only what stands between the markers is touched.
"""

import argparse
import sys
from typing import Any

import front
import results
from figures import FIGURES, Figure

ROOT = results.HERE.parent
ALL, README, PLOT = ROOT / "docs" / "benchmarks.md", ROOT / "README.md", ROOT / "docs" / "speed.svg"
BEGIN = "<!-- benchmarks: begin; written by benchmarks/table.py, do not edit -->"
END = "<!-- benchmarks: end -->"
HEAD = "| figure | work | bar | median (spread) | verdict | date |\n|---|---|---|---|---|---|"


class BadMarkersError(Exception):
    """A page whose markers are not one begin and then one end."""


def median_text(one: dict[str, Any]) -> str:
    spread = f"{results.number(one, 'min')}..{results.number(one, 'max')}"
    return f"**{results.number(one, 'median')}{one['unit']}** {one['what']} ({spread})"


def judged(figure: Figure, result: dict[str, Any] | None) -> dict[str, Any] | None:
    """A result by the bars of today, which may be others than those of its day. Pure."""
    if result is None:
        return None
    bars = {check.what: check for case in figure.cases for check in case.checks}
    checks = [
        {**one, "passed": bars[one["what"]].is_met(one["median"])} if one["what"] in bars else one
        for one in result["checks"]
    ]
    return {**result, "checks": checks, "passed": all(one["passed"] for one in checks)}


def cells(figure: Figure, result: dict[str, Any] | None) -> list[str]:
    """A row of the table; a figure without a result says so. Pure."""
    checks = [check for case in figure.cases for check in case.checks]
    bars = "; ".join(f"{check.bar_text()} {check.what}" for check in checks)
    start = [f"`{figure.name}`", figure.work, bars]
    if result is None:
        return [*start, "not measured yet", "", ""]
    found = result["checks"]
    if any(case.takes_turns for case in figure.cases):
        num_met = sum(one["passed"] for one in found)
        worst = min(found, key=lambda one: one["median"])
        medians = f"{num_met} of {len(found)} at their bar; worst {median_text(worst)}"
    else:
        medians = "; ".join(median_text(one) for one in found)
    return [*start, medians, "pass" if result["passed"] else "**miss**", result["date"][:10]]


def where(found: list[dict[str, Any]]) -> str:
    """One line on the machines of these results. Pure."""
    machines = {
        f"{one['machine']['cpu']}, {one['machine']['num_cores']} cores, "
        f"{one['machine']['memory_nbytes'] / 2**30:.0f} GiB, "
        f"{''.join(f'{gpu}, ' for gpu in one['machine'].get('gpus', ()))}torch {one['torch']}"
        for one in found
    }
    return f"Measured on: {'; '.join(sorted(machines))}." if machines else "Nothing measured yet."


GROUPS = {
    "Loading on one machine": (
        "images", "fast-images", "fast-images-peers", "fast-images-nothing", "audio-tables", "frameworks", "clips", "iterable", "stateful", "workers0-val", "workers0-tensors", "tokens",
        "handover", "handover-small", "workers",
    ),
    "Remembered work": (
        "early", "remembered-photos", "remembered-sounds", "remembered-volumes", "remembered-scans",
        "remembered-videos", "remembered-cold", "remembered-nothing",
    ),
    "Other machines": (
        "offload", "ingest", "scale", "thin-link", "lossless", "kill", "join", "relay",
        "machine-memory", "trainer-cpu-remote",
    ),
    "Files elsewhere": ("storage", "host-files"),
    "Gradients": (
        "all-reduce", "ddp-step", "ddp-step-100mbit", "gradient-kernels", "gradient-accuracy",
        "gradient-budget",
    ),
    "On a GPU": ("gpu-offload", "pinned", "gradient-kernels-gpu"),
    "What it must not cost": (
        "many-loaders", "nothing-to-gain", "start", "epoch-gap", "trainer-cpu", "memory", "verify",
        "bare-install",
    ),
    "What it tells": ("doctor", "recording", "live-page"),
    "This repository": ("demo", "default-tier", "full-tier"),
}  # fmt: skip

assert sorted(name for names in GROUPS.values() for name in names) == sorted(FIGURES)


def table(found: dict[str, dict[str, Any] | None]) -> str:
    """The Markdown of all figures by group, in each those that miss their bar first. Pure."""
    parts = []
    for group, names in GROUPS.items():
        misses_first = sorted(names, key=lambda name: (found[name] or {"passed": True})["passed"])
        rows = [f"| {' | '.join(cells(FIGURES[name], found[name]))} |" for name in misses_first]
        parts += [f"### {group}\n", HEAD, *rows, ""]
    return "\n".join([*parts, where([one for one in found.values() if one])])


def in_readme(found: dict[str, dict[str, Any] | None]) -> str:
    """The Markdown of the README's rows. Pure."""
    images = found["images"]
    if images is None:
        return "Not measured yet."
    num_missed = sum(one is None or not one["passed"] for one in found.values())
    return (
        f"{front.three_rows(images)}\n{where([images])[:-1]}, {images['date'][:10]}. Of {len(found)} "
        f"figures with a bar {num_missed} miss it: [all of them](docs/benchmarks.md), those first."
    )


def with_table(page: str, text: str) -> str:
    """The page with `text` between its markers. Raises BadMarkersError. Pure."""
    before, begin, rest = page.partition(BEGIN)
    inside, end, after = rest.partition(END)
    if not begin or not end or BEGIN in inside + after or END in before + after:
        raise BadMarkersError(f"want one line `{BEGIN}` and after it one line `{END}`")
    return f"{before}{BEGIN}\n{text}\n{END}{after}"


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="benchmarks/table.py", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; 1 if stale")
    flags = parser.parse_args(argv)
    found = {name: judged(figure, results.newest(name)) for name, figure in FIGURES.items()}
    try:
        pages = {
            ALL: with_table(ALL.read_text(), table(found)),
            README: with_table(README.read_text(), in_readme(found)),
            PLOT: front.plot(found),
        }
    except BadMarkersError as failure:
        print(failure, file=sys.stderr)
        return 1
    stale = {
        page: text for page, text in pages.items() if not page.exists() or page.read_text() != text
    }
    for page, text in stale.items():
        if not flags.check:
            page.write_text(text)
        word = "stale; run benchmarks/table.py" if flags.check else "written"
        print(f"{page.relative_to(ROOT)}: {word}")
    return 1 if flags.check and stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
