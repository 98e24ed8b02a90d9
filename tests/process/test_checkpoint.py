"""A script that saves torchdata's StatefulDataLoader and goes on from it, plain and with stoker."""

import shutil
import sys

import pytest

from tests.process.harness import finished, under_stoker

pytest.importorskip("torchdata.stateful_dataloader", reason="torchdata not installed")
QUIET_TORCH = ["-W", "ignore"]  # torch 2.13 warns of what torchdata 0.11 calls


NUM_BATCHES = (3, 4, 99)  # of each run; the last one's loader ends before


@pytest.fixture(scope="module")
def played(tmp_path_factory):
    """Runs a training on a side after the other, a checkpoint between; those that begin alike share
    their beginning. What all its runs printed."""
    done = {(): ("", None)}  # sides -> what was printed, its folder

    def play(sides):
        if sides in done:
            return done[sides]
        before, last = play(sides[:-1])
        folder = tmp_path_factory.mktemp("".join("ps"[side] for side in sides))
        if last is not None:
            shutil.copy(last / "state.pt", folder)
        report = f"--report-json={folder / 'report.json'}"
        command = [
            *(under_stoker(report) if sides[-1] else ()), sys.executable, *QUIET_TORCH,
            "checkpoint.py", str(folder / "state.pt"), str(NUM_BATCHES[len(sides) - 1]),
        ]  # fmt: skip
        result = finished(command, folder)
        assert (result.returncode, result.stderr) == (0, "")
        if sides[-1]:
            assert [loader["offloaded"] for loader in result.report["loaders"]] == [True]
        done[sides] = before + result.stdout, folder
        return done[sides]

    return lambda *sides: play(sides)[0]


@pytest.mark.cover(2)
@pytest.mark.parametrize("third", [False, True], ids=["plain", "ours"])
@pytest.mark.parametrize("second", [False, True], ids=["plain", "ours"])
@pytest.mark.parametrize("first", [False, True], ids=["plain", "ours"])
def test_a_training_may_change_sides_at_any_checkpoint(played, first, second, third):
    expected = played(False, False, False)
    assert len(expected.splitlines()) == 12
    assert played(first, second, third) == expected


def test_a_script_that_imports_torchdata_first_is_taken_over(tmp_path):
    report = f"--report-json={tmp_path / 'report.json'}"
    script = ["checkpoint.py", str(tmp_path / "state.pt"), "3"]
    result = finished([*under_stoker(report), sys.executable, *QUIET_TORCH, *script], tmp_path)
    assert (result.returncode, result.stderr) == (0, "")
    assert [loader["offloaded"] for loader in result.report["loaders"]] == [True]
