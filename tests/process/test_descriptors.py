"""Descriptors and process handles that a sandbox refuses, or a script closes."""

import os
import select
import signal
import sys
from pathlib import Path

from tests.process.harness import (
    PATIENCE_S,
    finished,
    marked,
    plain_and_ours,
    started,
    under_stoker,
)


def test_a_sandbox_that_refuses_pidfds_changes_nothing(tmp_path):
    command = [*under_stoker(quiet=False), sys.executable, "no_pidfds.py", "--kill"]
    result = finished(command, tmp_path)
    assert (result.returncode, result.leftovers) == (0, {}), result.stderr
    assert result.stdout == f"{[list(range(k, k + 4)) for k in range(0, 64, 4)]}\n"
    assert "no report" not in result.stderr
    assert "stays with torch" not in result.stderr


def test_the_keeper_holds_nothing_that_the_script_was_given(tmp_path):
    """Whoever reads from it sees its end, a disk can be unmounted, and the report is written."""
    read_fd, write_fd = os.pipe()
    with started(
        [*under_stoker(f"--report-json={tmp_path / 'report.json'}"), sys.executable, "keeps.py", str(write_fd)],
        tmp_path, pass_fds=[write_fd],
    ) as running:  # fmt: skip
        os.close(write_fd)
        running.wait_for("closed")
        assert select.select([read_fd], [], [], PATIENCE_S)[0], "the pipe's end never comes"
        assert os.read(read_fd, 1) == b""
        (keeper,) = [pid for pid, what in marked(running.mark).items() if "keeper.py" in what]
        assert Path(f"/proc/{keeper}/cwd").readlink() == Path("/")
        running.signal(signal.SIGKILL)
        result = running.finish()
    os.close(read_fd)
    assert result.report["ended"] == "SIGKILL"


def test_a_script_may_close_all_descriptors_and_use_their_numbers(tmp_path):
    """Nothing of ours is written to its files, nor are they closed; there is one report. The files
    of the plain run may hold more: torch writes to the numbers that its own pipes had."""
    plain, ours = plain_and_ours([sys.executable, "closes_all.py"], tmp_path, "--hash-batches")
    *batches, sizes = ours.stdout.splitlines()
    assert (ours.returncode, ours.stderr) == (0, "")
    assert batches == plain.stdout.splitlines()[:-1]
    assert sizes.split() == ["4"] * 36
    assert ours.report["ended"] == "exit"
    assert sum(loader["num_batches"] for loader in ours.report["loaders"]) == 3 * 18
    assert [file.name for file in ours.folder.glob("report*")] == ["report.json"]
