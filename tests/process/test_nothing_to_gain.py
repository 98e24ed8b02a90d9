"""A short script with nothing to gain does not pay for what makes batches elsewhere.

How much later its command ends is measured: benchmarks, `nothing-to-gain`.
"""

import sys
from pathlib import Path

from stoker.loaders.in_process.evidence import TOO_LITTLE
from tests.process.harness import finished, under_stoker

COSTLY = (
    "stoker.loaders.driver",
    "stoker.loaders.multiprocess",
    "stoker.scheduler.decider",
    "stoker.scheduler.rules",
    "stoker.remote.net",
    "stoker.remote.trainer",
    "stoker.wire.",
    "stoker.fingerprint.",
)


def test_loaders_with_nothing_to_gain_import_nothing_that_makes_batches_elsewhere(
    tmp_path: Path,
) -> None:
    flags = ["--workers", "2", "--report-json", str(tmp_path / "report.json")]
    run = finished([*under_stoker(*flags), sys.executable, "nothing_to_gain.py"], tmp_path)
    assert run.returncode == 0, run.stderr
    imported = run.stdout.split()
    assert "stoker.loaders.in_process.first" in imported
    assert [name for name in imported if name.startswith(COSTLY)] == []
    assert run.report is not None
    short, nothing, little = (
        loader["reasons"][0].removeprefix("num_workers=0: ") for loader in run.report["loaders"]
    )
    # On a machine with much else to do no batch of the first loader is short by the clock.
    assert short in ("a batch takes less than handing it over", TOO_LITTLE)
    assert (nothing, little) == ("there is nothing to gain", TOO_LITTLE)
