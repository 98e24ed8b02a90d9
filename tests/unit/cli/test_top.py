"""The screen and the line of `stoker top`: true to the log, in any size of terminal."""

import pytest

from stoker.cli.tell.top import BLOCKS, line_of, recent, screen
from stoker.runs.buckets import Row, Span
from stoker.stalls.split import Seen
from tests.unit.cli.runs import a_run

SEEN = Seen(compute_s=0.5, other_s=0.25)


def test_a_screen_says_how_fast_it_is_and_where_time_goes():
    lines = screen(a_run(num_s=90, lasts=True, with_report=False, seen=SEEN))
    assert lines[0] == "stoker top  20270115-080000-7  running, 1:31"
    assert lines[3].split() == ["loader", "batches", "samples", "samples/s"]
    assert lines[4].split() == ["train.py:9", "4,500", "36,000", "400"]
    parts = [line.split() for line in lines[7:10]]
    assert [(words[0], words[-2], words[-1]) for words in parts] == [
        ("the", "#" * 12, "50%"), ("waiting", "#" * 6, "25%"), ("other", "#" * 6, "25%"),
    ]  # fmt: skip
    assert lines[-1] == f"samples/s {'#' * 48} at most 400"


@pytest.mark.parametrize(("width", "height"), [(80, 24), (40, 10), (200, 60), (20, 3)])
def test_it_fits_any_terminal(width, height):
    run = a_run(num_s=90, seen=SEEN)
    many = [{"number": k, "place": f"a/very/long/way/to/train_{k}.py:{k}"} for k in range(30)]
    lines = screen(run._replace(loaders=many), width, height, BLOCKS)
    assert len(lines) < height
    assert max(map(len, lines)) < width


def test_a_run_that_has_done_nothing_yet_has_a_screen():
    lines = screen(a_run(num_s=0, lasts=True, with_report=False))
    assert "  no step yet" in lines
    assert line_of(a_run(num_s=0, lasts=True, with_report=False)).endswith("0 samples/s, waited 0%")


def test_a_line_says_what_a_screen_says():
    text = "20270115-080000-7 exit 1:30: 4,500 batches, 400 samples/s, waited 25%"
    assert line_of(a_run(num_s=90)) == text
    assert " lost " in line_of(a_run(with_report=False))


def test_only_the_last_minute_counts():
    slow = [Span(float(k), 1.0, [Row(0, 1, 8, 0.5, 0.5, 1.0)]) for k in range(100)]
    fast = [Span(100.0 + k, 1.0, [Row(0, 10, 80, 0.0, 1.0, 0.1)]) for k in range(60)]
    assert recent([*slow, *fast]) == fast
    long = [Span(60.0 * k, 60.0, []) for k in range(3)]
    assert recent(long) == long[-1:]
    assert recent([]) == []
