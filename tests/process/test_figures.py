"""What the report counts and times is what the script's own clock says, within 2 %."""

import contextlib
import json
import sys

import pytest

from tests.process.harness import started, under_stoker


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Of stoker on and off, both at once: they mostly wait."""
    with contextlib.ExitStack() as stack:
        running = {}
        for flag in ("", "--off"):
            folder = tmp_path_factory.mktemp("figures")
            flags = [f"--report-json={folder / 'report.json'}", *flag.split()]
            command = [*under_stoker(*flags), sys.executable, "figures.py"]
            running[flag] = stack.enter_context(started(command, folder))
        return {flag: one.finish() for flag, one in running.items()}


@pytest.mark.parametrize("flag", ["", "--off"], ids=["stoker", "off"])
def test_figures_are_those_of_the_scripts_own_clock(runs, flag):
    ours = runs[flag]
    assert ours.returncode == 0, ours.stderr
    *loops, whole = map(json.loads, ours.stdout.splitlines())
    assert len(loops) == len(ours.report["loaders"])
    for own, row in zip(loops, ours.report["loaders"], strict=True):
        assert (row["num_batches"], row["num_samples"]) == (
            own["num_batches"],
            own["num_samples"],
        ), own["name"]
        # Of a quick loader the clock and what it costs to read it are no small part.
        if own["name"] != "quick":
            assert row["wait_s"] == pytest.approx(own["wait_s"], rel=0.02, abs=0.002), own["name"]
    assert [row["offloaded"] for row in ours.report["loaders"]][:3] == (
        [False, False, False] if flag else [True, True, False]
    )
    assert ours.report["wall_s"] == pytest.approx(whole["wall_s"], rel=0.02)
