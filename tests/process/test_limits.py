"""A run whose log and keeper cannot be goes on, and says in one line what it does without."""

import sys

import pytest

from tests.process.harness import finished, under_stoker

SCRIPT = """
import os, resource, signal, sys, torch
from torch.utils.data import DataLoader
signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
loader = DataLoader([torch.zeros(2)] * 8, batch_size=2)
from stoker.reports import record
import stoker.intercept.eligible, stoker.intercept.meter, stoker.reports.digest, stoker.intercept.in_process, stoker.loaders.in_process.iterator
{limit}
got = [len(list(loader)) for _ in range(3)]
{undo}
os.write(1, str(got).encode())
"""
LIMITS = {
    "file size": (
        "resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))",
        "resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)",
    ),
    "descriptors": (
        "resource.setrlimit(resource.RLIMIT_NOFILE, (3, 64))",
        "resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))",
    ),
    "a keeper that cannot start": (
        "record.Recorder._start_keeper = lambda self: 1 / 0",
        "",
    ),
    "a log that was closed": (
        "list(loader); os.closerange(3, 64); mine = os.open('/dev/null', os.O_RDWR)",
        "",
    ),
}


@pytest.mark.parametrize(("limit", "undo"), LIMITS.values(), ids=LIMITS)
def test_the_run_goes_on_without_a_log(tmp_path, limit, undo):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.format(limit=limit, undo=undo))
    flags = under_stoker("--hash-batches", quiet=False)
    ours = finished([*flags, sys.executable, str(script)], tmp_path)
    assert (ours.returncode, ours.stdout) == (0, "[4, 4, 4]"), ours.stderr
    if "FSIZE" not in limit and "closerange" not in limit:  # stderr is under the former, too
        assert ours.stderr.count("no report if this run is killed") == 1, ours.stderr
    assert "12 batches" in ours.stderr or "16 batches" in ours.stderr
    assert ours.leftovers == {}
