"""What the tests of frameworks share: one way to play a case and to hold it to the page."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.frameworks import page
from tests.frameworks.cases import CASES
from tests.frameworks.sides import Case, Side, both_sides

Play = Callable[[Case], tuple[Side, Side]]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--write-compatibility",
        action="store_true",
        help="write docs/compatibility.md from what is seen (name tests/frameworks on the line)",
    )


@pytest.fixture
def play(request: pytest.FixtureRequest, tmp_path: Path) -> Play:
    """Runs a case on both sides and compares; then its row with the page, or writes it there."""

    def play_case(case: Case) -> tuple[Side, Side]:
        plain, ours = both_sides(case, tmp_path)
        row = page.row_of(case, ours.loaders)
        if request.config.getoption("--write-compatibility", default=False):
            page.write([row], [(one.framework, one.what) for one in CASES])
        on_page = page.rows().get(row.key)
        assert on_page is not None, f"docs/compatibility.md has no row for {row.key}"
        assert row.told == on_page.told, "docs/compatibility.md says otherwise"
        return plain, ours

    return play_case
