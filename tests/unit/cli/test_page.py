"""The page on a run: whole HTML that asks for nothing, true to the log, small however long the run."""

import re
import time
from html.parser import HTMLParser

import pytest

from stoker.cli.tell.page import MAX_BARS, bars_of, hints_of, page_of
from stoker.runs.buckets import Row, Span
from stoker.stalls.split import Seen
from tests.unit.cli.runs import a_run

EMPTY = {"meta", "br", "rect", "line", "polyline"}  # elements that do not close


class Checker(HTMLParser):
    """Elements that are open, and all attributes."""

    def __init__(self, page):
        super().__init__(convert_charrefs=True)
        self.open, self.attributes, self.tags, self.text = [], [], [], ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes += attributes
        if tag not in EMPTY:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes += attributes

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


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
    assert not {"script", "link", "img", "iframe"} & set(found.tags)
    assert not [
        value
        for name, value in found.attributes
        if name in ("src", "href") or name.startswith("on")
    ]
    assert "url(" not in page and "@import" not in page
    assert "<script>alert(1)</script>" in found.text
    assert ("lang", "en") in found.attributes


def test_a_page_says_what_the_log_says():
    text = Checker(page_of([a_run()])).text
    assert "25% of the steps' time was waiting" in text
    assert "400 samples a second, at most 400" in text
    assert "3,000 steps, from" in text
    assert "train.py:9: 3,000 batches by 2 workers" in text
    assert "chains" in text


def test_a_step_that_is_longer_than_a_bar_counts_over_its_own_time():
    """A batch of 1,000 samples every five seconds is 200 a second, whatever bar it falls into."""
    run = a_run()
    rows = [Span(5.0 * k, 1.0, [Row(0, 1, 1000, 1.0, 4.0, 5.0)]) for k in range(1, 21)]
    text = Checker(page_of([run._replace(spans=rows)])).text
    assert "200 samples a second, at most 200" in text
    assert text.count(": 200 samples a second") == 20


def test_a_step_that_is_longer_than_a_bar_fills_all_of_its_time():
    """Steps of 3 s, one every 5 s: the time between them is no step's. Those of two loaders at once share theirs."""
    spans = [Span(5.0 * k + 4, 1.0, [Row(0, 1, 8, 1.0, 2.0, 3.0)]) for k in range(3)]
    assert [(bar.at_s, bar.long_s) for bar in bars_of(spans)] == [(2, 3), (7, 3), (12, 3)]
    older = [Span(0.0, 1.0, [Row(0, 9, 9, 0.0, 1.0, 0.1)])]
    older += [Span(600.0 + 10 * k, 10.0, [Row(0, 9, 9, 0.0, 9.0, 1.0)]) for k in range(9)]
    assert [(bar.at_s, bar.long_s) for bar in bars_of(older)][1:] == [
        (600 + 10 * k, 10) for k in range(9)
    ]  # later spans are longer
    both = [Span(4.0 * k, 1.0, [Row(n, 1, 8, 1.0, 2.0, 3.0) for n in range(2)]) for k in range(3)]
    assert [(bar.at_s, bar.long_s) for bar in bars_of(both)] == [(0, 1), (1, 4), (5, 4)]


def test_a_page_says_where_the_time_went():
    run = a_run(
        seen=Seen(own_s=0.05, copy_s=0.1, compute_s=0.25, communication_s=0.05, other_s=0.1)
    )
    text = Checker(page_of([run])).text
    assert "20% of the steps' time was waiting" in text
    for words, seconds, share in (
        ("the model", 22.5, 37.5), ("waiting for data", 12.0, 20.0), ("copies to the device", 9.0, 15.0),
        ("other Python", 9.0, 15.0), ("waiting for other ranks", 4.5, 7.5), ("stoker's own work", 3.0, 5.0),
    ):  # fmt: skip
        assert f"{words}{seconds} s{share}%" in text
    assert "the model 38%, waiting for data 20%" in text  # of a bar, and of a slow step
    assert "all else 7" not in text
    both = Checker(page_of([a_run(), run])).text
    assert "of a step: waiting for data5.0 ms4.0 ms0.80x" in both
    assert "of a step: all else15.0 ms0.0 ms0.00x" in both


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
    text = Checker(page_of([a_run(seen=seen)])).text
    assert all(hint in text for hint in hints)


def test_a_few_slow_samples_are_pointed_out():
    run = a_run(seen=Seen(compute_s=0.75))
    slow = [step._replace(why="a batch in 1.00 s: sample 7 for 0.90 s") for step in run.slowest]
    assert "a few samples are slow to make" in hints_of(run._replace(slowest=slow))[-1]
    assert "sample 7 for 0.90 s" in Checker(page_of([run._replace(slowest=slow)])).text


def test_without_a_step_there_is_nothing_to_try():
    assert hints_of(a_run(num_s=0)) == []


def test_a_run_is_shown_beside_what_it_was_before():
    before, after = a_run("20270114-080000-6", num_s=120), a_run(rate=100)
    text = Checker(page_of([after], before)).text
    assert "Before and after: beside 20270114-080000-6" in text
    assert "plain PyTorchwith stokerwith stoker / plain PyTorch" in text
    assert re.search(r"samples a second, from the first batch on403\.4813\.6 ?2\.02x", text)
    assert "of a step: all else15.0 ms7.5 ms0.50x" in text


def test_pictures_have_words_for_those_who_do_not_see_them():
    found = Checker(page_of([a_run()]))
    labels = [value for name, value in found.attributes if name == "aria-label"]
    assert len(labels) == found.tags.count("svg") == 3
    assert all(label in found.text for label in labels)


def test_the_second_run_is_compared_with_the_first():
    text = Checker(page_of([a_run(), a_run("20270116-080000-8", rate=100)])).text
    assert re.search(r"samples a second, from the first batch on\D*406\.8\D*813\.6\D*2\.00x", text)


def test_a_day_is_a_small_page_made_at_once():
    rows = [Row(k, 50, 400, 0.25, 0.75, 0.1) for k in range(3)]
    spans = [Span(60.0 * k, 60.0, rows) for k in range(24 * 60)]
    run = a_run()._replace(spans=spans)
    began_s = time.perf_counter()
    page = page_of([run])
    assert time.perf_counter() - began_s < 3
    assert len(page) < 200_000
    assert len(bars_of(spans)) == MAX_BARS
    assert sum(bar.num_samples for bar in bars_of(spans)) == 3 * 400 * 24 * 60


def test_a_run_without_time_has_no_rate():
    assert a_run(num_s=0).totals().rate == 0.0
