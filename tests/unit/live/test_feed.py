"""What a page is told: each second once, whatever came late, and a day in bounded memory."""

import json
import re

import pytest
from tests.unit.live.feeds import LOADER, PLACE, SETTINGS, a_day, a_feed, a_tick

from stoker.live.feed import RECENT_S, Feed
from stoker.live.server import STATIC
from stoker.reports.metrics import LoaderRecord
from stoker.runs.buckets import Look
from stoker.stalls.split import Split


def spans_of(feed):
    return [json.loads(span) for span in feed.spans]


def test_loaders_of_one_line_have_names_of_their_own():
    lines = [{**LOADER, "number": 1, "dataset": "Photos, 300 samples, batch_size=8"}]
    feed = Feed()
    for second in (1, 2):
        tick = a_tick(second, lines=lines if second == 2 else ())
        more = [LoaderRecord(n, PLACE, True, [], 2) for n in range(1, second)]
        feed.take(tick._replace(loaders=[*tick.loaders, *more]))
        names = [loader["name"] for loader in feed.state["loaders"]]
        assert names == [
            [PLACE],
            [f"{PLACE} (Photos, 2,100 samples, batch_size=8)", f"{PLACE} (Photos, 300 samples, batch_size=8)"],
        ][second - 1]  # fmt: skip


def test_every_second_is_told_once():
    feed = a_feed(30)
    spans = spans_of(feed)
    assert [span["at"] for span in spans] == list(range(30))
    assert [row[1] for span in spans for row in span["rows"]] == [10] * 30
    assert feed.state["loaders"][0]["num_batches"] == 300


def test_parts_of_the_time_come_in_the_order_that_the_page_reads():
    (row,) = spans_of(a_feed(10))[-1]["rows"]
    number, num_batches, num_samples, _, data_s, *_, compute_s, other_s, unseen_s = row
    assert (number, num_batches, num_samples) == (0, 10, 80)
    assert data_s == pytest.approx(0.25)
    assert compute_s + other_s + unseen_s == pytest.approx(0.75)


def test_the_parts_are_named_as_the_page_names_them():
    script = (STATIC / "page.js").read_text()
    (names,) = re.findall(r"const PARTS = \[(.*?)\]", script)
    assert [f"{name}_s" for name in re.findall(r'"(\w+)"', names)] == list(Split._fields)


def test_a_step_that_is_longer_than_a_span_counts_over_its_own_time():
    """A batch of 1,000 samples every five seconds is 200 a second, whatever span it falls into."""
    feed = Feed()
    for second in range(1, 41):
        num = second // 5
        record = LoaderRecord(0, "train.py:9", True, [], 2, num, num * 1000, 1, second * 0.5)
        looks = (
            []
            if second % 5
            else [Look(second - 0.5, 0, num, num * 1000, second * 0.5, second * 0.5)]
        )
        feed.take(a_tick(second)._replace(looks=looks, loaders=[record]))
    _, *spans = spans_of(feed)  # the first look has no time to be over
    rates = [span["rows"][0][2] / span["over"] for span in spans]
    assert rates == [200] * len(spans) and len(spans) > 4
    last = feed.state["last"]
    assert last["rows"][0][2] / last["over"] == 200


def test_workers_are_busy_waiting_or_lost():
    assert spans_of(a_feed(8))[-1]["crew"] == "a6"
    late = spans_of(a_feed(20, num_workers=5))[-1]
    assert late["crew"] == "a6a6x"
    assert late["ready"] == 2.0
    assert late["cpu"] == 0.5


def test_the_last_seconds_are_told_beside_spans_of_a_minute():
    feed = a_feed(4 * 3600)
    spans = spans_of(feed)
    assert spans[-1]["long"] == 60
    assert feed.state["last"]["long"] == feed.state["last"]["over"] == RECENT_S
    assert feed.state["last"]["rows"][0][1] == 10 * RECENT_S
    assert feed.state["last"]["raw"] == 10 << 20


def test_a_day_with_256_workers_is_three_megabytes():
    feed = a_day()
    assert len(feed.spans) == 2880
    assert sum(map(len, feed.spans)) + len(feed.now) < 3 << 20
    rows = [row for span in spans_of(feed) for row in span["rows"]]
    assert sum(row[1] for row in rows) == 10 * 24 * 3600


def test_what_is_said_and_settled_is_told():
    feed = Feed()
    lines = [
        {"kind": "said", "text": "a message", "at_s": 0.26},
        {"kind": "note", "number": 0, "text": "a note"},
        {"kind": "settled", "number": 0, "reasons": ["a reason"], "offloaded": False},
        {"kind": "gradients", "scheme": "8bit"},
        {"kind": "digest", "number": 0, "sha256": "00"},
    ]
    feed.take(a_tick(1))
    feed.take(a_tick(2, lines=lines))
    (loader,) = feed.state["loaders"]
    assert (loader["place"], loader["notes"], loader["reasons"]) == (
        PLACE,
        ["a note"],
        ["a reason"],
    )
    assert feed.state["said"] == [{"at_s": 0.3, "text": "a message"}]
    assert feed.state["gradients"]["scheme"] == "8bit"
    assert feed.state["about"]["origins"] == {"page": "--page"}


def test_before_the_first_line_nothing_is_told():
    feed = Feed()
    feed.take(a_tick(2)._replace(lines=[], looks=[], loaders=[]))
    assert (feed.spans, feed.now) == ([], b"{}")


def test_an_end_is_told_with_what_was_open():
    feed = a_feed(3)
    feed.take(a_tick(4), "SIGKILL")
    assert feed.state["ended"] == "SIGKILL"
    assert sum(row[1] for span in spans_of(feed) for row in span["rows"]) == 40


def test_a_run_that_begins_anew_counts_from_there():
    """DDP makes a recorder before the first loader is iterated."""
    feed = Feed()
    began = {"kind": "began", "began_s": 5.0}
    feed.take(a_tick(4)._replace(lines=[SETTINGS], looks=[], loaders=[]))
    feed.take(a_tick(6)._replace(lines=[began, LOADER]))
    assert feed.state["run_s"] == feed.state["last"]["over"] == 1.0
    feed.take(a_tick(7))
    assert [span["over"] for span in spans_of(feed)] == [1.0, 1.0]
