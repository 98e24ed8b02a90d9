"""A memory limit that plain torch keeps is kept with stoker too: forks hold memory of the script's.

In a cgroup of its own, first version, where this machine lets one be made.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path("/sys/fs/cgroup/memory")
SPARE_NBYTES = 100 << 20  # beyond what the script needs under torch
SCRIPT = Path(__file__).parent / "scripts" / "rewrites.py"


@pytest.fixture
def cgroup() -> Iterator[Path]:
    folder = ROOT / f"stoker-tests-{os.getpid()}"
    try:
        folder.mkdir()
        (folder / "memory.limit_in_bytes").write_text(str(4 << 30))
    except OSError as error:
        pytest.skip(f"no memory cgroup can be made here: {error}")
    yield folder
    for line in (folder / "cgroup.procs").read_text().split():
        (ROOT / "cgroup.procs").write_text(line)
    folder.rmdir()


def run_in(cgroup: Path, *command: str) -> "subprocess.CompletedProcess[str]":
    enter = f'echo $$ > {cgroup}/cgroup.procs && exec "$@"'
    return subprocess.run(
        ["sh", "-c", enter, "sh", *command], text=True, capture_output=True, timeout=300, check=False
    )  # fmt: skip


def test_a_script_that_rewrites_its_memory_stays_within_a_limit_that_torch_keeps(cgroup):
    plain = run_in(cgroup, sys.executable, str(SCRIPT))
    assert plain.returncode == 0, plain.stderr
    most = int((cgroup / "memory.max_usage_in_bytes").read_text())
    (cgroup / "memory.force_empty").write_text("0")
    (cgroup / "memory.limit_in_bytes").write_text(str(most + SPARE_NBYTES))
    ours = run_in(cgroup, sys.executable, "-m", "stoker", "run", "--", sys.executable, str(SCRIPT))
    assert ours.returncode == 0, f"{ours.returncode}: {ours.stderr}"
    assert ours.stdout == plain.stdout
