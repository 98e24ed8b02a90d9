"""Write the newest results into the tables of docs/benchmarks.md and README.md.

Promise: no figure in them is typed by hand; with --check nothing is written and the exit code
is 1 where a table is not what the results say. Only what stands between the markers is touched.
"""

import argparse
import sys
from pathlib import Path
from typing import Any

import results
from figures import FIGURES, Figure

ROOT = results.HERE.parent
PAGES = (ROOT / "docs" / "benchmarks.md", ROOT / "README.md")
BEGIN = "<!-- benchmarks: begin; written by benchmarks/table.py, do not edit -->"
END = "<!-- benchmarks: end -->"
HEAD = "| figure | work | bar | median (spread) | verdict | date |\n|---|---|---|---|---|---|"


class BadMarkersError(Exception):
    """A page whose markers are not one begin and then one end."""


def median_text(one: dict[str, Any]) -> str:
    spread = f"{results.number(one, 'min')}..{results.number(one, 'max')}"
    return f"**{results.number(one, 'median')}{one['unit']}** {one['what']} ({spread})"


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
        f"{one['machine']['memory_nbytes'] / 2**30:.0f} GiB, torch {one['torch']}"
        for one in found
    }
    return f"Measured on: {'; '.join(sorted(machines))}." if machines else "Nothing measured yet."


def table(found: dict[str, dict[str, Any] | None]) -> str:
    """The Markdown of all figures. Pure."""
    rows = [f"| {' | '.join(cells(FIGURES[name], result))} |" for name, result in found.items()]
    return "\n".join([HEAD, *rows, "", where([one for one in found.values() if one])])


def with_table(page: str, text: str) -> str:
    """The page with `text` between its markers. Raises BadMarkersError. Pure."""
    before, begin, rest = page.partition(BEGIN)
    inside, end, after = rest.partition(END)
    if not begin or not end or BEGIN in inside + after or END in before + after:
        raise BadMarkersError(f"want one line `{BEGIN}` and after it one line `{END}`")
    return f"{before}{BEGIN}\n{text}\n{END}{after}"


def refresh(path: Path, text: str, check: bool) -> bool:
    """Whether the page was as the results say; if not, it is now, unless `check`."""
    old = path.read_text()
    new = with_table(old, text)
    if new != old and not check:
        path.write_text(new)
    return new == old


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="benchmarks/table.py", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; 1 if stale")
    flags = parser.parse_args(argv)
    text = table({name: results.newest(name) for name in FIGURES})
    num_stale = 0
    for path in PAGES:
        # The README is another's page: without our markers it has no table to keep.
        if not path.exists() or (path.name == "README.md" and BEGIN not in path.read_text()):
            continue
        try:
            fresh = refresh(path, text, flags.check)
        except BadMarkersError as failure:
            print(f"{path.relative_to(ROOT)}: {failure}", file=sys.stderr)
            return 1
        if not fresh:
            num_stale += 1
            word = "stale; run benchmarks/table.py" if flags.check else "written"
            print(f"{path.relative_to(ROOT)}: {word}")
    return 1 if flags.check and num_stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
