"""What counts and hashes batches never raises into the loop, whatever the batches are."""

import sys

import pytest

from tests.process.harness import finished, under_stoker

COMMAND = [sys.executable, "odd_batches.py"]


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    plain = finished(COMMAND, tmp_path_factory.mktemp("plain"))
    assert (plain.returncode, plain.stdout.count("\n")) == (0, 12), plain.stderr
    return plain


@pytest.mark.parametrize("flags", [[], ["--off", "--hash-batches"]], ids=["stoker", "hashed"])
def test_batches_that_raise_whatever_is_asked_of_them(plain, tmp_path, flags):
    report = f"--report-json={tmp_path / 'report.json'}"
    ours = finished([*under_stoker(report, *flags), *COMMAND], tmp_path)
    assert (ours.returncode, ours.stdout, ours.stderr) == (0, plain.stdout, plain.stderr)
    rows = ours.report["loaders"]
    # Loaders made anew at one place are one row; of an iterable's batch its own length counts.
    assert [(row["num_batches"], row["num_samples"]) for row in rows] == [(18, 36), (18, 33)]
    if flags:
        assert all(len(row["batches_sha256"]) == 18 for row in rows)
        assert rows[0]["batches_sha256"][3:6] == [None] * 3
        assert "could not be hashed: ZeroDivisionError" in " ".join(rows[0]["notes"])
