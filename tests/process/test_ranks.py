"""Ranks: each its own batches, as under torch; one report each, one summary, and who is missing."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.process.harness import Finished, finished, under_stoker

TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]


def command(how: str, folder: Path) -> list[str]:
    if how == "torchrun":
        return [sys.executable, *TORCHRUN, "ranked.py", "launcher"]
    return [sys.executable, "ranked.py", how, str(folder / "meeting point")]


def run(how: str, folder: Path, *flags: str) -> tuple[Finished, dict[int, Any]]:
    """The command under stoker, and its reports by rank."""
    folder.mkdir()
    report = f"--report-json={folder / 'report.json'}"
    stoker = under_stoker(report, "--hash-batches", *flags, quiet=False)
    ran = finished([*stoker, *command(how, folder)], folder, environ={"TELL_FD": ""})
    assert ran.returncode == 0, ran.stderr
    assert ran.leftovers == {}
    reports = [json.loads(file.read_text()) for file in folder.glob("report.*json")]
    return ran, {report["rank"]: report for report in reports}


def said(ran: Finished) -> list[str]:
    return sorted(line for line in ran.stdout.splitlines() if line.startswith("rank"))


@pytest.mark.few(1)
@pytest.mark.parametrize("how", ["torchrun", "spawn"])
def test_each_rank_gets_torchs_batches_and_a_report_and_rank_0_sums_up(how, tmp_path):
    plain, theirs = run(how, tmp_path / "plain", "--off")
    ours, reports = run(how, tmp_path / "ours")
    assert said(ours) == said(plain) and len(said(ours)) == 2
    assert sorted(reports) == sorted(theirs) == [0, 1]
    for rank, report in reports.items():
        (loader,), (torchs,) = report["loaders"], theirs[rank]["loaders"]
        assert loader["offloaded"] and not torchs["offloaded"]
        assert loader["batches_sha256"] == torchs["batches_sha256"]
        assert len(loader["batches_sha256"]) == 10
        assert report["ranks_without_stoker"] == []
    summaries = [line for line in ours.stderr.splitlines() if "batches in" in line]
    assert len(summaries) == 1 and summaries[0].startswith("stoker: rank 0: ")


@pytest.mark.full
def test_the_slots_are_shared_among_the_ranks_of_a_host(tmp_path):
    """Of two cores each of two ranks has one: batches that draw nothing stay on their chains."""
    _, reports = run("torchrun", tmp_path / "ours", "--chains", "auto")
    share = max(1, len(os.sched_getaffinity(0)) // 2)
    for report in reports.values():
        assert report["loaders"][0]["chains"] == max(2, share)
        assert report["workers"]["slots"] == max(2, share)


@pytest.mark.full
def test_a_rank_without_stoker_is_named_by_rank_0(tmp_path):
    ran, reports = run("lonely", tmp_path / "ours")
    assert sorted(reports) == [0]
    assert reports[0]["ranks_without_stoker"] == [1]
    assert "ranks without stoker: 1; start their launcher with `stoker run` too" in ran.stderr
