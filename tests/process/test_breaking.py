"""G4: whatever of stoker fails before a loader's first batch, that loader is torch's, exactly.

What can fail is not listed here: a run that is whole tells which modules it imports and which
functions it calls until each loader's first batch, and each of them is broken in turn.
"""

import json
import sys
from pathlib import Path

import pytest

from tests.process.harness import SCRIPTS, finished


@pytest.mark.parametrize(
    ("what", "share"),
    [
        ("imports", 16),
        ("functions", 40),
        pytest.param("imports", 1, marks=pytest.mark.full),
        pytest.param("functions", 1, marks=pytest.mark.full),
    ],
)
def test_a_loader_whose_stoker_is_broken_gives_what_torch_gives(
    what: str, share: int, tmp_path: Path
) -> None:
    """share: one in so many of the pieces is broken, each in a fork of one process."""
    script = str(SCRIPTS / "breaking.py")
    run = finished([sys.executable, script, what, "0", str(share)], tmp_path, patience_s=1200.0)
    assert run.returncode == 0, run.stderr
    told = [json.loads(line) for line in run.stdout.splitlines()]
    assert len(told) * share > 30  # it has found them
    assert {one["piece"]: one["answer"] for one in told if not one["is_right"]} == {}
    assert {one["piece"]: one["answer"] for one in told if not _has_a_reason(one)} == {}
    assert run.leftovers == {}


def _has_a_reason(told: dict) -> bool:
    """Whether each loader that is left has one reason in the report, which was said; where there is
    no report, that was said."""
    if told["piece"].startswith("stoker.speak "):  # nothing can be said
        return True
    rows = told["answer"]["rows"]
    ours = [reasons for offloaded, reasons in rows if not offloaded]
    left = [reasons for reasons in ours if not reasons[:1] or "stoker failed" in reasons[0]]
    return all(len(reasons) == 1 for reasons in left) and (
        bool(told["said"]) or (bool(rows) and not left)
    )
