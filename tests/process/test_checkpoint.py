"""A script that saves torchdata's StatefulDataLoader and goes on from it, plain and with stoker."""

import itertools
import sys

import pytest

from tests.process.harness import finished, under_stoker

pytest.importorskip("torchdata.stateful_dataloader", reason="torchdata not installed")
QUIET_TORCH = ["-W", "ignore"]  # torch 2.13 warns of what torchdata 0.11 calls


def played(folder, sides):
    """The batches of three runs of one training, each on its side."""
    told = ""
    for number, (is_ours, num_batches) in enumerate(zip(sides, (3, 4, 99), strict=True)):
        report = f"--report-json={folder / f'{number}.json'}"
        command = [
            *(under_stoker(report) if is_ours else ()), sys.executable, *QUIET_TORCH,
            "checkpoint.py", str(folder / "state.pt"), str(num_batches),
        ]  # fmt: skip
        result = finished(command, folder)
        assert (result.returncode, result.stderr) == (0, "")
        told += result.stdout
    return told


@pytest.mark.slow
def test_a_training_may_change_sides_at_any_checkpoint(tmp_path):
    expected = None
    for sides in itertools.product([False, True], repeat=3):
        folder = tmp_path / "".join("ps"[side] for side in sides)
        folder.mkdir()
        told = played(folder, sides)
        expected = expected or told
        assert told == expected, sides
    assert len(expected.splitlines()) == 12


def test_a_script_that_imports_torchdata_first_is_taken_over(tmp_path):
    report = f"--report-json={tmp_path / 'report.json'}"
    script = ["checkpoint.py", str(tmp_path / "state.pt"), "3"]
    result = finished([*under_stoker(report), sys.executable, *QUIET_TORCH, *script], tmp_path)
    assert (result.returncode, result.stderr) == (0, "")
    assert [loader["offloaded"] for loader in result.report["loaders"]] == [True]
