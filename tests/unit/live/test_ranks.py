"""Other ranks' logs, followed as they grow."""

import json

import pytest

from stoker.live.ranks import RankReader

ABOUT = {"version": 1, "rank": 0, "world": "job 7", "host": "here", "began_unix_s": 100.0}


def put(folder, name, *entries):
    with (folder / f"{name}.jsonl").open("a") as opened:
        opened.writelines(json.dumps(entry) + "\n" for entry in entries)


def run(**values):
    return {"kind": "run", **ABOUT, **values}


def span(num, wait_s=0.25, at_s=0):
    return {
        "kind": "span",
        "at_s": at_s,
        "long_s": 2,
        "rows": [[0, num, num * 4, wait_s, 1 - wait_s, 0, 0, 0, 0.5, 0, 0]],
    }


def test_ranks_of_one_job_are_told_in_order(tmp_path):
    put(tmp_path, "20260101-000000-2-rank1", run(rank=1), span(10))
    put(tmp_path, "20260101-000000-1-rank0", run(), span(8), span(8, at_s=2))
    put(tmp_path, "20260101-000000-3-rank1", run(rank=1, world="another"), span(99))
    put(tmp_path, "20250101-000000-4-rank1", run(rank=1, began_unix_s=-1e6), span(99))
    put(tmp_path, "20260101-000000-5", run(rank=None, world=None), span(99))
    rows = RankReader(tmp_path, ABOUT).read()
    assert [(row["rank"], row["num_batches"], row["rate"]) for row in rows] == [
        (0, 16, 16.0),
        (1, 10, 20.0),
    ]
    assert rows[0]["split"]["data_s"] == pytest.approx(0.5)
    assert rows[0]["split"]["compute_s"] == pytest.approx(1.5)


def test_what_is_appended_is_added_and_half_a_line_waits(tmp_path):
    reader = RankReader(tmp_path, ABOUT)
    put(tmp_path, "20260101-000000-1-rank0", run(), span(1))
    assert reader.read()[0]["num_batches"] == 1
    file = tmp_path / "20260101-000000-1-rank0.jsonl"
    line = json.dumps(span(2))
    with file.open("a") as opened:
        opened.write(line[:20])
    assert reader.read()[0]["num_batches"] == 1
    with file.open("a") as opened:
        opened.write(f"{line[20:]}\nnonsense\n")
    assert reader.read()[0]["num_batches"] == 3
    put(tmp_path, "20260101-000000-1-rank0", {"kind": "end", "report": {"ended": "exit"}})
    assert reader.read()[0]["ended"] == "exit"


def test_a_rank_that_comes_late_is_found(tmp_path):
    reader = RankReader(tmp_path, ABOUT)
    put(tmp_path, "20260101-000000-1-rank0", run())
    assert len(reader.read()) == 1
    put(tmp_path, "20260101-000001-2-rank1", run(rank=1))
    assert len(reader.read()) == 2


def test_a_run_without_ranks_has_none(tmp_path):
    put(tmp_path, "20260101-000000-1", run(rank=None, world=None))
    assert RankReader(tmp_path, ABOUT | {"world": None}).read() == []


def test_a_log_that_is_only_begun_is_looked_at_again(tmp_path):
    """On a shared disk a file is seen before its first line."""
    reader = RankReader(tmp_path, ABOUT)
    (tmp_path / "20260101-000000-1-rank0.jsonl").touch()
    assert reader.read() == []
    put(tmp_path, "20260101-000000-1-rank0", run(), span(3))
    assert [row["num_batches"] for row in reader.read()] == [3]


def test_after_a_restart_the_newest_log_of_a_rank_counts(tmp_path):
    put(tmp_path, "20260101-000000-1-rank0", run(), span(3))
    put(tmp_path, "20260101-000100-2-rank0", run(began_unix_s=160.0), span(5))
    assert [row["num_batches"] for row in RankReader(tmp_path, ABOUT).read()] == [5]


def test_a_step_that_is_longer_than_a_span_counts_over_its_own_time(tmp_path):
    put(tmp_path, "20260101-000000-1-rank0", run(), span(5, at_s=0), span(5, at_s=8))
    assert RankReader(tmp_path, ABOUT).read()[0]["rate"] == 20 / 8
