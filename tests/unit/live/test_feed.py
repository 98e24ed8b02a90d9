"""What a page is told: each second once, whatever came late, and a day in bounded memory."""

import json

import pytest
from tests.unit.live.feeds import LOADER, PLACE, SETTINGS, a_day, a_feed, a_tick

from stoker.live.feed import Feed


def spans_of(feed):
    return [json.loads(span) for span in feed.spans]


def test_every_second_is_told_once():
    feed = a_feed(30)
    spans = spans_of(feed)
    assert [span["at"] for span in spans] == list(range(30))
    assert [row[1] for span in spans for row in span["rows"]] == [10] * 30
    assert feed.state["loaders"][0]["num_batches"] == 300
    assert feed.state["num_spans"] == len(spans)


def test_parts_of_the_time_come_in_the_order_that_the_page_reads():
    (row,) = spans_of(a_feed(10))[-1]["rows"]
    number, num_batches, num_samples, _, data_s, *_, compute_s, other_s, unseen_s = row
    assert (number, num_batches, num_samples) == (0, 10, 80)
    assert data_s == pytest.approx(0.25)
    assert compute_s + other_s + unseen_s == pytest.approx(0.75)


def test_workers_are_busy_waiting_or_lost():
    assert spans_of(a_feed(8))[-1]["crew"] == "96"
    late = spans_of(a_feed(20, num_workers=5))[-1]
    assert late["crew"] == "9696x"
    assert late["ready"] == 2.0
    assert late["cpu"] == 0.5


def test_the_last_second_is_told_beside_spans_of_a_minute():
    feed = a_feed(4 * 3600)
    spans = spans_of(feed)
    assert spans[-1]["long"] == 60
    assert feed.state["last"]["long"] == 1.0
    assert feed.state["last"]["rows"][0][1] == 10
    assert feed.state["last"]["raw"] == 1 << 20


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
    feed.end("SIGKILL", a_tick(4))
    assert feed.state["ended"] == "SIGKILL"
    assert sum(row[1] for span in spans_of(feed) for row in span["rows"]) == 40


def test_a_run_that_begins_anew_counts_from_there():
    """DDP makes a recorder before the first loader is iterated."""
    feed = Feed()
    began = {"kind": "began", "began_s": 5.0}
    feed.take(a_tick(6)._replace(lines=[SETTINGS, began, LOADER]))
    assert feed.state["run_s"] == 1.0
