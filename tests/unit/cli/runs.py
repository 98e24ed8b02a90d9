"""A made-up run, as its log says it."""

from pathlib import Path

from stoker.reports.metrics import LoaderRecord, RunRecord, as_json
from stoker.runs.buckets import Buckets, Look
from stoker.runs.file import Run
from stoker.stalls.split import Seen

ABOUT = {
    "command": ["python", "train.py", "<script>alert(1)</script>"], "folder": "/work/a & b", "host": "here",
    "settings": {"chains": "auto"}, "stoker": "0.1.0", "python": "3.11", "torch": "2.13",
}  # fmt: skip


def a_run(name="20270115-080000-7", num_s=60, rate=50, with_report=True, lasts=False, seen=()):
    """A loader that is waited for a quarter of the time, in steps of 1 / rate seconds. seen: in each second."""
    buckets, spans = Buckets(0.0), []
    for k in range(num_s):
        n = k + 1
        seen_so_far = Seen(*(n * part_s for part_s in seen))
        spans += buckets.add(Look(n, 0, n * rate, n * rate * 8, n / 4, n * 0.75, seen_so_far))
    spans += buckets.rest()
    record = LoaderRecord(0, "train.py:9", True, [], 2, num_batches=num_s * rate, wait_s=num_s / 4)
    record.first_wait_s = 1.0
    run = RunRecord(wall_s=float(num_s))
    report = as_json(run, [record], "exit") if with_report else None
    steps = sorted(buckets.histogram.items())
    file = Path(f"/state/{name}.jsonl")
    loaders = [{"number": 0, "place": "train.py:9"}]
    return Run(file, ABOUT, loaders, spans, report, steps, buckets.slowest(), lasts)
