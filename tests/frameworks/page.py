"""docs/compatibility.md: a table that the tests in this folder write and hold to be true.

Promise: a row says what a run's report said; with `--write-compatibility` the rows of the tests
that ran are written, without it a row that is not on the page fails its test. Versions are those
of the last writing: another one that does the same is no failure.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.frameworks.sides import Case

PAGE = Path(__file__).parents[2] / "docs" / "compatibility.md"
BLOCK = re.compile(
    r"(<!-- compatibility: begin; written by scripts/test --full tests/frameworks "
    r"--write-compatibility, do not edit -->\n)(.*?)(<!-- compatibility: end -->)",
    re.DOTALL,
)
HEAD = "| framework | version | what runs | taken over | left to torch |\n|---|---|---|---|---|\n"


@dataclass(frozen=True, slots=True)
class Row:
    """One case on the page."""

    framework: str
    version: str
    what: str
    taken_over: str
    left: str

    @property
    def key(self) -> tuple[str, str]:
        return (self.framework, self.what)

    @property
    def told(self) -> tuple[str, str, str, str]:
        """All but the version."""
        return (self.framework, self.what, self.taken_over, self.left)

    def line(self) -> str:
        cells = (self.framework, self.version, self.what, self.taken_over, self.left)
        return f"| {' | '.join(cells)} |\n"


def row_of(case: Case, loaders: list[dict[str, Any]]) -> Row:
    """What a report says of a case. Loaders are counted by where and over what they iterate.

    Not those without workers: what becomes of them may depend on how long a batch takes.
    """
    loaders = [loader for loader in loaders if loader["chains"]]
    num_taken = sum(loader["offloaded"] for loader in loaders)
    reasons = dict.fromkeys(loader["reasons"][0] for loader in loaders if loader["reasons"])
    taken = "all" if num_taken == len(loaders) else f"{num_taken} of {len(loaders)}"
    return Row(
        case.framework,
        case.version(),
        case.what,
        taken if num_taken else "none",
        "; ".join(reason.replace("|", "\\|") for reason in reasons),
    )


def rows() -> dict[tuple[str, str], Row]:
    """The page's rows, by their key, in their order."""
    found = BLOCK.search(PAGE.read_text())
    assert found, f"{PAGE.name} has lost its marker lines"
    cells = [
        [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        for line in found[2].splitlines()[2:]
    ]
    return {row.key: row for row in (Row(*cell) for cell in cells)}


def write(new: Iterable[Row], order: list[tuple[str, str]]) -> None:
    """Put these rows on the page, in the order of the cases; rows of no case go."""
    known = rows() | {row.key: row for row in new}
    body = HEAD + "".join(known[key].line() for key in order if key in known)
    PAGE.write_text(BLOCK.sub(lambda found: found[1] + body + found[3], PAGE.read_text()))
