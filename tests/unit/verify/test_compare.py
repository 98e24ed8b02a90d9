"""Two records in, a verdict out."""

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from stoker.intercept import patches
from stoker.verify import side as recording
from stoker.verify.compare import compare, likely_reasons
from stoker.verify.record import (
    Batch,
    Finding,
    LoaderTrail,
    Plan,
    ProcessTrail,
    Side,
    parse,
    plan_of,
)
from stoker.verify.table import different, left, reason, table, undecided

OURS = "under stoker"
CLOCK = Finding("time.time()", "clock", "data.py:31", "Noisy.__getitem__", "dataset")
PID = Finding("os.getpid()", "process", "data.py:7", "Noisy.__init__", "dataset")
LOOP = Finding("os.urandom()", "entropy", "train.py:3", "main", "loop")
LIBRARY = Finding("os.urandom()", "entropy", "site-packages/x.py:3", "f", "library")


def batches(digests, *, epoch=1, first=0, generators=None):
    return [
        Batch(first + k, epoch, sha256, (generators or {}).get(k, {"random": "r", "torch": "t"}))
        for k, sha256 in enumerate(digests)
    ]


def loader(trail, place="train.py:9", looks=("D", 40), findings=()):
    return LoaderTrail(place, looks, list(findings), "yes, 2 workers", trail)


def process(*loaders, rank="", stopped="", name="MainProcess"):
    return ProcessTrail(rank, ("train.py",), name, 0.0, stopped, list(loaders))


def side(*processes, exit_code=0):
    return Side(exit_code, list(processes))


def one(digests, **kwargs):
    return side(process(loader(batches(digests)), **kwargs))


def test_what_a_torch_keeps_because_of_its_version_is_recorded_and_told(tmp_path, monkeypatch):
    odd = [replace(patch, signature="self, other") for patch in patches.PATCHES[:1]]
    monkeypatch.setattr(patches, "PATCHES", odd)
    os.close(recording._Side(Plan(str(tmp_path), 3, 0.0), patches.left_by_version())._fd)
    (record,) = map(Path.read_text, tmp_path.iterdir())
    line = f"left to torch because of its version: {odd[0]} (hand out our batches)\n"
    assert left(side(parse(record), parse(record))) == line
    assert left(one("abc")) == ""


def test_equal_sides_have_no_difference():
    verdict = compare(one("abc"), one("abc"), OURS)
    assert (verdict.first, verdict.num_compared) == (None, 3)
    assert [row.verdict for row in verdict.rows] == ["equal"]


def test_the_first_differing_batch_is_named_with_its_epoch_and_place():
    verdict = compare(one("abc"), one("axy"), OURS)
    assert verdict.first.what == "batch 2 (epoch 1) of train.py:9 is not the same under stoker"
    assert [row.verdict for row in verdict.rows] == ["different at batch 2"]


def test_the_same_batch_in_another_epoch_is_a_difference():
    two = batches("a") + batches("b", epoch=2, first=1)
    verdict = compare(one("ab"), side(process(loader(two))), OURS)
    assert (
        verdict.first.what == "batch 2 of train.py:9 is in epoch 1 plain, in epoch 2 under stoker"
    )


def test_a_generator_that_moved_is_named_before_the_batches_that_it_spoils():
    moved = {1: {"random": "r", "torch": "other"}}
    two = side(process(loader(batches("abx", generators=moved))))
    verdict = compare(one("abc"), two, OURS)
    assert "the training process's torch generator after batch 2" in verdict.first.what


def test_a_generator_that_only_one_side_has_says_nothing():
    with_numpy = {k: {"random": "r", "torch": "t", "numpy": "n"} for k in range(3)}
    two = side(process(loader(batches("abc", generators=with_numpy))))
    assert compare(one("abc"), two, OURS).first is None
    assert compare(two, one("abc"), OURS).first is None


def test_of_two_loaders_the_one_that_differs_earlier_is_named():
    def run(train, val):
        return side(process(loader(batches(train, first=10)), loader(batches(val), "train.py:20")))

    verdict = compare(run("abc", "de"), run("abX", "dX"), OURS)
    assert verdict.first.what.startswith("batch 2 (epoch 1) of train.py:20 ")


@pytest.mark.parametrize(("plain", "ours"), [("abc", "ab"), ("ab", "abc")])
def test_a_side_that_ended_by_itself_must_hold_all_that_the_other_holds(plain, ours):
    verdict = compare(one(plain), one(ours), OURS)
    assert verdict.first.what == (
        f"train.py:9 gives {len(plain)} batches plain, {len(ours)} under stoker"
    )


@pytest.mark.parametrize("stopped", ["count", "limit"])
def test_a_side_that_was_ended_is_compared_as_far_as_it_came(stopped):
    assert compare(one("abc", stopped=stopped), one("abcde"), OURS).first is None
    assert compare(one("abcde"), one("abc", stopped=stopped), OURS).first is None
    killed = Side(None, one("abc").processes)
    assert compare(killed, one("abcde"), OURS).first is None


def test_a_loader_of_one_side_only_is_a_difference_unless_the_other_met_the_limit():
    both = side(process(loader(batches("ab")), loader(batches("c", first=2), "train.py:20")))
    assert compare(both, one("ab"), OURS).first.what == "train.py:20 is iterated only plain"
    assert compare(one("ab"), both, OURS).first.what == "train.py:20 is iterated only under stoker"
    assert compare(both, one("ab", stopped="count"), OURS).first is not None
    assert compare(both, one("ab", stopped="limit"), OURS).first is None


def test_loaders_at_one_place_are_told_apart_by_their_looks():
    plain = side(
        process(loader(batches("a"), looks=("A", 1)), loader(batches("b"), looks=("B", 2)))
    )
    ours = side(process(loader(batches("b"), looks=("B", 2)), loader(batches("a"), looks=("A", 1))))
    assert compare(plain, ours, OURS).first is None


def test_processes_are_matched_by_rank_and_name_and_then_in_order():
    def run(*ranks):
        return side(*(process(loader(batches(f"{rank}{k}")), rank=rank) for rank, k in ranks))

    assert compare(run("00", "10", "01"), run("10", "00", "01"), OURS).first is None
    assert compare(run("00", "01"), run("01", "00"), OURS).first is not None


def test_a_process_of_one_side_only_is_a_difference():
    child = process(loader(batches("z")), name="Process-1")
    verdict = compare(side(*one("ab").processes, child), one("ab"), OURS)
    assert verdict.first.what == "Process-1 of train.py iterates a loader only plain"


def test_an_exit_code_of_its_own_explains_what_is_missing_but_not_what_differs():
    failed = Side(1, one("ab").processes)
    assert "exit code 0 plain and 1" in compare(one("abc"), failed, OURS).first.what
    assert "batch 1" in compare(one("xbc"), failed, OURS).first.what
    ended = Side(None, one("abc").processes)
    assert compare(one("abc"), ended, OURS).first is None


def test_the_likeliest_reason_depends_on_whether_plain_runs_differ():
    ours = side(process(loader(batches("x"), findings=[LIBRARY, LOOP, CLOCK, PID])))
    first = compare(one("a"), ours, OURS).first
    assert likely_reasons(first, plain_differs=True) == [CLOCK, PID, LOOP]
    assert likely_reasons(first, plain_differs=False)[0] == PID
    assert "likely reason: time.time() at data.py:31 (in Noisy.__getitem__); also seen: " in (
        undecided(first, first)
    )
    assert "likely reason: os.getpid() at data.py:7" in different(first)


def test_without_a_finding_it_says_where_else_to_look():
    first = compare(one("a"), one("x"), OURS).first
    assert "none seen" in reason(first, True) and "--sandbox" in reason(first, True)


def test_the_table_is_aligned_and_names_ranks():
    text = table(compare(one("ab", rank="1"), one("ab", rank="1"), OURS).rows)
    head, line = text.splitlines()
    assert line.startswith("  train.py:9 (rank 1)  ")
    assert head.index("verdict") == line.index("equal")


def test_a_record_is_read_back_and_a_torn_last_line_is_left_out():
    lines = [
        {"kind": "process", "rank": "", "argv": ["t"], "name": "MainProcess", "began_s": 1.5},
        {"kind": "loader", "place": "t:1", "looks": ["D", 4], "findings": [PID]},
        {"kind": "offload", "loader": 0, "text": "no: num_workers=0"},
        {"kind": "batch", "loader": 0, "epoch": 1, "sha256": "a", "generators": {"random": "r"}},
        {"kind": "stop", "why": "count"},
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    found = parse(text + '{"kind": "bat')
    assert (found.argv, found.stopped, found.began_s) == (("t",), "count", 1.5)
    assert found.loaders[0].batches == [Batch(0, 1, "a", {"random": "r"})]
    assert found.loaders[0].findings == [PID]
    assert found.loaders[0].offload == "no: num_workers=0"
    assert parse('{"kind": "proc') is None


def test_a_plan_travels_as_one_variable():
    plan = Plan("/tmp/x", 50, 1234.5)
    assert plan_of(plan.to_env()) == plan
    assert plan_of({}) is None
