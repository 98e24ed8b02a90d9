"""Frameworks' own training loops, plain and under stoker: the same losses, batches, words and end."""

from pathlib import Path

import pytest

from tests.frameworks import page
from tests.frameworks.cases import CASES
from tests.frameworks.conftest import Play
from tests.frameworks.sides import SCRIPTS, Case, both_sides


@pytest.mark.full
@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_framework_cannot_tell(play: Play, case: Case) -> None:
    play(case)


@pytest.mark.full
def test_other_batches_than_torchs_would_be_seen(tmp_path: Path) -> None:
    case = next(case for case in CASES if case.framework == "torch")
    with pytest.raises(AssertionError, match="loss"):
        both_sides(case, tmp_path, "--chains=3")  # as if the script had asked for 3 workers


@pytest.mark.full
def test_every_row_of_the_page_is_a_case_and_every_case_a_row() -> None:
    assert list(page.rows()) == [(case.framework, case.what) for case in CASES]


@pytest.mark.full
def test_every_script_is_a_case() -> None:
    scripts = {file.name for file in SCRIPTS.glob("*.py")} - {"material.py"}
    assert scripts == {case.script for case in CASES}
