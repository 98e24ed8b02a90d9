"""Samples that are remembered on other machines: the same batches, and one store for each machine."""

import json
import sys
from pathlib import Path

import pytest

from tests.process.away import hosts
from tests.process.harness import Running, started, under_stoker

NUM_HOSTS = 2
SCRIPT = [sys.executable, "away_remembered.py"]
VALUE_NBYTES = 4 << 16


def digest_of(running: Running) -> str:
    return running.wait_for("digest")


def kept_nbytes(host: int) -> int:
    """Memory of the host's stores. A shelf is the largest of what it holds without a name."""
    found = [0]
    for fd in Path(f"/proc/{host}/fd").iterdir():
        if str(fd.readlink()).startswith("/memfd:"):
            status = fd.stat()
            found.append(status.st_blocks * 512 if status.st_size > 1 << 36 else 0)
    return max(found)


@pytest.mark.parametrize("cache", ["auto", "off"])
def test_hosts_remember_samples(cache, tmp_path):
    with started(SCRIPT, tmp_path / "plain", stdin=None) as running:
        plain = digest_of(running)
    report = tmp_path / "report.json"
    flags = [f"--cluster=processes:{NUM_HOSTS}", "--chains=script", f"--cache={cache}"]
    flags.append(f"--report-json={report}")
    waits = [str(NUM_HOSTS), "30"] if cache == "auto" else [str(NUM_HOSTS)]
    with started(
        [*under_stoker(*flags), *SCRIPT, *waits], tmp_path / "ours", stdin=None
    ) as running:
        assert digest_of(running) == plain
        kept = [kept_nbytes(host) for host in hosts(running)]
        running.process.stdin.close()
        assert running.process.wait(60) == 0
    assert len(kept) == NUM_HOSTS
    told = json.loads(report.read_text())["cache"]
    if cache == "auto":
        assert sum(kept) > 20 * VALUE_NBYTES
        (place,) = told["places"]
        assert place["place"].endswith("Slow")
        assert place["num_samples"] == 96
        assert place["num_hits"] >= 30
        assert told["away_nbytes"] > 10 * VALUE_NBYTES
    else:
        assert sum(kept) < VALUE_NBYTES // 2  # rows that were looked at
        assert told is None
