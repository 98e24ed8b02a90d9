"""The page on a run: whole HTML that asks for nothing, true to the log, small however long the run.

What it shows of that is in tests/process/test_browser.py.
"""

import json
import time
from html.parser import HTMLParser

import pytest

from stoker.cli.tell.page import hints_of, page_of
from stoker.runs.buckets import Row, Span
from stoker.stalls.split import Seen, Split
from tests.unit.cli.runs import a_run

EMPTY = {"meta", "link", "br"}  # elements that do not close


class Checker(HTMLParser):
    """Elements that are open, all attributes, and what the page draws."""

    def __init__(self, page):
        super().__init__(convert_charrefs=True)
        self.open, self.attributes, self.told = [], [], None
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.attributes += attributes
        if tag not in EMPTY:
            self.open.append((tag, attributes))

    def handle_endtag(self, tag):
        assert self.open.pop()[0] == tag

    def handle_data(self, data):
        if self.open and ("id", "told") in self.open[-1][1]:
            self.told = json.loads(data)


def told_of(*runs, before=None):
    return Checker(page_of(runs, before)).told


PAGES = {
    "a run": lambda: page_of([a_run()]),
    "two": lambda: page_of([a_run(), a_run("20270116-080000-8", rate=100)]),
    "one that lasts": lambda: page_of([a_run(with_report=False, lasts=True)]),
    "one that was lost": lambda: page_of([a_run(with_report=False)]),
    "without a batch": lambda: page_of([a_run(num_s=0)]),
}


@pytest.mark.parametrize("make", PAGES.values(), ids=PAGES)
def test_a_page_is_whole_and_asks_for_nothing(make):
    page = make()
    found = Checker(page)
    assert found.open == []
    asked = [v for name, v in found.attributes if name in ("src", "href") or name.startswith("on")]
    assert asked == ["data:,", "#main"]
    assert "url(" not in page and "@import" not in page
    assert "<script>alert(1)</script>" not in page
    (now, *_) = [run["now"] for run in found.told["runs"]]
    assert now["about"]["command"][-1] == "<script>alert(1)</script>"
    assert ("lang", "en") in found.attributes


def test_a_page_says_what_the_log_says():
    (run,) = told_of(a_run())["runs"]
    now = run["now"]
    assert "train.py:9: 3,000 batches by 2 workers" in now["summary"]
    assert "/work/a & b on here; stoker 0.1.0, Python 3.11, torch 2.13" in now["summary"]
    (loader,) = now["loaders"]
    assert (loader["name"], loader["num_batches"], loader["chains"]) == ("train.py:9", 3000, 2)
    assert sum(num for *_, num in now["steps"]) == 3000
    assert now["about"]["settings"] == {"chains": "auto"}
    assert sum(row[2] for span in run["spans"] for row in span["rows"]) == 24_000


@pytest.mark.parametrize(("lasts", "ended"), [(True, None), (False, "lost")])
def test_a_run_without_an_end_is_shown_as_far_as_its_log_goes(lasts, ended):
    (run,) = told_of(a_run(with_report=False, lasts=lasts))["runs"]
    (loader,) = run["now"]["loaders"]
    assert (run["now"]["ended"], loader["num_batches"]) == (ended, 3000)


def test_a_step_that_is_longer_than_a_span_counts_over_its_own_time():
    """A batch of 1,000 samples every five seconds is 200 a second."""
    rows = [Span(5.0 * k + 4, 1.0, [Row(0, 1, 1000, 1.0, 4.0, 5.0)]) for k in range(20)]
    (run,) = told_of(a_run()._replace(spans=rows))["runs"]
    assert {span["rows"][0][2] / span["over"] for span in run["spans"]} == {200}


def test_a_page_says_where_the_time_went():
    seen = Seen(own_s=0.05, copy_s=0.1, compute_s=0.25, communication_s=0.05, other_s=0.1)
    run = a_run(seen=seen)
    _, told = told_of(a_run(), run)["runs"]
    (loader,) = told["now"]["loaders"]
    expected = Split(12.0, 3.0, 9.0, 4.5, 22.5, 9.0, 0.0)
    assert Split(**loader["split"]) == pytest.approx(expected)
    rows = {row[0]: row[1:] for row in told_of(a_run(), run)["compared"]["rows"]}
    assert rows["of a step: waiting for data"] == ["5.0 ms", "4.0 ms", "0.80x"]
    assert rows["of a step: all else"] == ["15.0 ms", "0.0 ms", "0.00x"]
    slow = told["now"]["slowest"][0]
    assert sum(slow["split"]) == pytest.approx(slow["step_s"])


@pytest.mark.parametrize(
    ("seen", "begins"),
    [
        (Seen(compute_s=0.75), ["stoker doctor -- python train.py '<script>alert(1)</script>': "]),
        (Seen(copy_s=0.5, compute_s=0.25), ["stoker doctor", "pin_memory=True"]),
        (
            Seen(communication_s=0.5, compute_s=0.25),
            ["stoker doctor", "stoker probe -- python train.py"],
        ),
        (Seen(other_s=0.75), ["stoker doctor", "the script's own Python"]),
    ],
)
def test_what_to_try_next_goes_by_what_took_the_time(seen, begins):
    hints = hints_of(a_run(seen=seen))
    assert len(hints) == len(begins)
    assert all(hint.startswith(begin) for hint, begin in zip(hints, begins, strict=True))
    (run,) = told_of(a_run(seen=seen))["runs"]
    assert run["now"]["hints"] == hints


def test_a_few_slow_samples_are_pointed_out():
    run = a_run(seen=Seen(compute_s=0.75))
    slow = [step._replace(why="a batch in 1.00 s: sample 7 for 0.90 s") for step in run.slowest]
    assert "a few samples are slow to make" in hints_of(run._replace(slowest=slow))[-1]
    (told,) = told_of(run._replace(slowest=slow))["runs"]
    assert told["now"]["slowest"][0]["why"] == "a batch in 1.00 s: sample 7 for 0.90 s"


def test_without_a_step_there_is_nothing_to_try():
    assert hints_of(a_run(num_s=0)) == []


def test_a_run_is_shown_beside_what_it_was_before():
    before, after = a_run("20270114-080000-6", num_s=120), a_run(rate=100)
    told = told_of(after, before=before)
    assert told["heading"] == "Before and after: beside 20270114-080000-6"
    heads, rows = told["compared"]["heads"], told["compared"]["rows"]
    assert heads == ["", "#plain PyTorch", "#with stoker", "#with stoker / plain PyTorch"]
    assert ["samples a second, from the first batch on", "403.4", "813.6", "2.02x"] in rows
    assert ["of a step: all else", "15.0 ms", "7.5 ms", "0.50x"] in rows


def test_the_second_run_is_compared_with_the_first():
    rows = told_of(a_run(), a_run("20270116-080000-8", rate=100))["compared"]["rows"]
    assert ["samples a second, from the first batch on", "406.8", "813.6", "2.00x"] in rows


def test_a_day_is_a_small_page_made_at_once():
    rows = [Row(k, 50, 400, 0.25, 0.75, 0.1) for k in range(3)]
    spans = [Span(60.0 * k, 60.0, rows) for k in range(24 * 60)]
    run = a_run()._replace(spans=spans)
    began_s = time.perf_counter()
    page = page_of([run])
    assert time.perf_counter() - began_s < 3
    assert len(page) < 1_000_000


def test_a_run_without_time_has_no_rate():
    assert a_run(num_s=0).totals().rate == 0.0
