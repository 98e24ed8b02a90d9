"""What a run says about itself at its end, of real scripts."""

import sys

import pytest

from stoker.report.summary import MAX_LINES
from tests.process.harness import finished, under_stoker

SPINNING = (
    "OpenMP threads of the training process spin on the workers' cores: try OMP_NUM_THREADS=1"
)


@pytest.mark.parametrize(("num_threads", "is_told"), [("2", True), ("1", False)])
def test_threads_that_spin_on_the_workers_cores_are_named(tmp_path, num_threads, is_told):
    command = [*under_stoker(quiet=False), sys.executable, "spins.py"]
    ran = finished(command, tmp_path, environ={"OMP_NUM_THREADS": num_threads})
    assert ran.returncode == 0, ran.stderr
    lines = [line for line in ran.stderr.splitlines() if line.startswith("stoker: ")]
    assert len(lines) <= MAX_LINES
    assert (SPINNING in lines[-1]) == is_told, lines
