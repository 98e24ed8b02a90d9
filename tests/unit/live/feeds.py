"""A made-up run, second by second, as the report keeper hears of it."""

import functools

from stoker.live.feed import Feed, Host, Tick
from stoker.reports.metrics import LoaderRecord, RunRecord
from stoker.runs.buckets import Look
from stoker.runs.crew import LOST, Crew, Place

PLACE = "train.py:9"
ABOUT = {
    "command": ["python", "train.py", "</script><script>alert(1)</script>"], "settings": {"page": "127.0.0.1:0"},
    "origins": {"page": "--page"}, "began_unix_s": 1.8e9, "host": "here", "world": None,
}  # fmt: skip
SETTINGS = {"kind": "settings", "about": ABOUT, "pid": 7, "rank": None, "began_s": 0.0}
LOADER = {
    "kind": "loader", "number": 0, "place": PLACE, "offloaded": True, "reasons": [], "chains": 2,
    "dataset": "Photos, 2,100 samples, batch_size=8",
}  # fmt: skip


def a_tick(second, num_workers=2, lines=(), rate=10):
    """A loader that is waited for a quarter of the time; workers are busy in turn, and each fifth is lost after a while."""
    record = LoaderRecord(0, PLACE, True, [], 2, second * rate, second * rate * 8, 1, second / 4)
    record.busy_s, record.compute_s, record.raw_nbytes = second * 0.75, second / 2, second << 20
    look = Look(
        second - 0.5, 0, record.num_batches, record.num_samples, record.wait_s, record.busy_s
    )
    crew = Crew(5 * second, 10 * second, [_place(k, second) for k in range(num_workers)])
    host = Host(0.5, 1 << 30, 4 << 30, 3 << 28, second << 20)
    run = RunRecord(wall_s=float(second))
    return Tick(second, [*_first(second), *lines], [look], run, [record], crew, host, [])


def _first(second):
    return [SETTINGS, LOADER] if second == 1 else []


def _place(number, second):
    num_looks = min(5 * second, 50) if number % 5 == 4 else 5 * second
    num_busy = num_looks // 2 if number % 2 else num_looks
    return Place(0, 0, 0 if num_looks == 5 * second else LOST, number, num_looks, num_busy)


def a_feed(num_s, **values):
    feed = Feed()
    for second in range(1, num_s + 1):
        feed.take(a_tick(second, **values))
    return feed


@functools.cache
def a_day():
    """A feed of 24 hours with 256 workers."""
    return a_feed(24 * 3600, num_workers=256)
