"""What came between two reports: a cell's own part of a run."""

from stoker.api.snapshot import frozen, since
from stoker.reports.metrics import LoaderRecord, RunRecord, as_json


def report(*num_batches, **run):
    loaders = [
        LoaderRecord(i, f"cell 1:{i}", True, [], 2, num_batches=num, wait_s=num / 10)
        for i, num in enumerate(num_batches)
    ]
    return as_json(RunRecord(num_cores=2, **run), loaders, "exit")


def test_only_what_grew_is_shown_and_by_how_much():
    found = frozen(since(report(10, 5), report(10, 7, 3), wall_s=1.0))
    assert [(each.place, each.num_batches) for each in found.loaders] == [
        ("cell 1:1", 2),
        ("cell 1:2", 3),
    ]
    assert found.num_batches == 5 and abs(found.wait_s - 0.5) < 1e-9 and found.wall_s == 1.0


def test_a_run_that_was_begun_anew_counts_from_its_beginning():
    found = frozen(since(report(100), report(4), wall_s=1.0))
    assert [each.num_batches for each in found.loaders] == [4]


def test_losses_are_those_of_the_cell():
    before, after = report(1, num_lost=2, num_replayed=3), report(2, num_lost=3, num_replayed=4)
    assert "1 worker died; recomputed at most 1 batch" in frozen(since(before, after, 1.0)).text
