"""A run that is over, or two side by side, as one HTML file that needs nothing else: the live page, which draws
what is in the file instead of what it would ask for.

Pure but for the live page's own files, which it reads: runs in, text out.
"""

import html
import json
import shlex
from collections.abc import Iterator, Sequence
from typing import Any

from stoker.live.feed import drawn, storage_rows
from stoker.live.server import STATIC
from stoker.live.server import page_of as live_page
from stoker.reports.metrics import names_of
from stoker.reports.summary import readable_nbytes, summary
from stoker.runs.buckets import bounds_of
from stoker.runs.file import Run
from stoker.stalls.split import WORDS, Split, split_of, summed

LEAST_FRAC = 0.1  # of the steps' time, for something to be done about it
MANY_SLOW = 3  # steps whose batch took long to make
_COUNTS = ("num_batches", "num_samples", "wait_s", "busy_s")
_KNOWN = (*_COUNTS, "chains", "offloaded", "reasons", "notes")


def page_of(runs: Sequence[Run], before: Run | None = None) -> str:
    """Return the page of a run, or of two: the second is compared with the first. before: a run as plain PyTorch, that
    the only one is compared with."""
    told: dict[str, Any] = {"runs": [_told_of(run) for run in runs]}
    if len(runs) == 2:
        told["compared"] = _comparison(runs[0], runs[1], "first", "second")
        told["heading"] = "The second run beside the first"
    elif before is not None:
        told["compared"] = _comparison(before, runs[0], "plain PyTorch", "with stoker")
        told["heading"] = f"Before and after: beside {before.name}"
    title = html.escape("stoker: " + " and ".join(run.name for run in runs))
    held = json.dumps(told).replace("<", "\\u003c")  # ends no element
    page = live_page(STATIC)[0].decode().replace("<title>stoker</title>", f"<title>{title}</title>")
    element = f'<script type="application/json" id="told">{held}</script>'
    return page.replace("</main>", f"</main>\n{element}")


def _told_of(run: Run) -> dict[str, Any]:
    """Return a run as the live page is told of it (live/feed.py), and what is known of it only at its end."""
    report, end_s, spans = run.report or {}, 0.0, []
    for span in run.spans:
        spans.append(drawn(span, end_s))
        end_s = span.at_s + span.long_s
    loaders = list(_loaders(run))
    # As a row of a span: number, batches, samples, longest step, and the parts of the time.
    rows = [
        [each["number"], each["num_batches"], each["num_samples"], 0.0, *each["split"].values()]
        for each in loaders
    ]
    began_s = run.spans[0].at_s if run.spans else 0.0
    slowest = [
        {**slow._asdict(), "split": split_of(slow.wait_s, slow.step_s - slow.wait_s, slow.seen)}
        for slow in run.slowest
    ]
    return {
        "spans": spans,
        "now": {
            "name": run.name, "about": run.about, "ended": None if run.lasts else run.state,
            "run_s": run.totals().wall_s, "last": {"long": end_s, "over": end_s - began_s, "rows": rows},
            "loaders": loaders, "workers": report.get("workers"), "places": [],
            "gradients": report.get("gradients") or {"wire_nbytes": 0}, "host": {}, "remembered": report.get("cache"),
            "fast": report.get("fast"), "storage": storage_rows(report.get("storage")), "ranks": [], "said": [], "slow": [],
            "summary": _summary(run), "hints": hints_of(run), "slowest": slowest,
            "steps": [[*bounds_of(bin_), num] for bin_, num in run.steps],
        },
    }  # fmt: skip


def _loaders(run: Run) -> Iterator[dict[str, Any]]:
    """Iterate the loaders: as the report has them; where there is none, as far as the log goes."""
    ended = run.report["loaders"] if run.report else []
    for k, (loader, name) in enumerate(zip(run.loaders, names_of(run.loaders), strict=True)):
        rows = [row for span in run.spans for row in span.rows if row.number == loader["number"]]
        begun = {"chains": 0, "offloaded": False, "reasons": [], "notes": []} | loader
        sums = {key: sum(getattr(row, key) for row in rows) for key in _COUNTS}
        last = {key: ended[k][key] for key in _KNOWN} if k < len(ended) else {}
        split = summed(split_of(row.wait_s, row.busy_s, row.seen) for row in rows)
        yield {**begun, **sums, **last, "name": name, "split": split._asdict()}


def _summary(run: Run) -> str:
    text = "The log ends in the middle: the machine went down, or what keeps the log."
    if run.report:
        text = summary(run.report).replace("stoker: ", "").rstrip()
    elif run.lasts:
        text = "The run lasts."
    if any(run.memory):
        first, most = map(readable_nbytes, run.memory)
        text += f"\nmemory of workers and what they start: {first} at first, {most} at most"
    about = run.about
    versions = f"stoker {about['stoker']}, Python {about['python']}, torch {about['torch']}"
    return f"{text}\n{about['folder']} on {about['host']}; {versions}"


def hints_of(run: Run) -> list[str]:
    """Return what to try, by what took the time; none for a run without a step.

    What each would bring is for `stoker doctor` to say, which tries it out.
    """
    split = run.split()
    total_s = sum(split)
    if not total_s:
        return []
    command, settings = shlex.join(run.about["command"]), run.about["settings"]
    waited_s = split.data_s + split.own_s
    hints = (
        (waited_s, f"stoker doctor -- {command}: predicts what workers, memory and machines would bring"),
        (waited_s if settings.get("off") else 0, f"stoker run -- {command}: this run was plain PyTorch"),
        (split.copy_s, "pin_memory=True in the loader and non_blocking=True in .to(): copies beside the model's work"),
        (0 if settings.get("gradients") else split.communication_s,
         f"stoker probe -- {command}: measures the links, and what compressed gradients would bring"),
        (split.other_s, "the script's own Python: a profiler (py-spy record) shows the lines; print and logging in each step are usual"),
    )  # fmt: skip
    found = [hint for part_s, hint in hints if part_s >= LEAST_FRAC * total_s]
    if sum(1 for slow in run.slowest if slow.why) >= MANY_SLOW:
        found.append("a few samples are slow to make: the table of slowest steps names them")
    return found


def _comparison(a: Run, b: Run, name_a: str, name_b: str) -> dict[str, Any]:
    """Return a table; heads of columns of numbers begin with #."""
    rows = []
    x, y = a.totals(), b.totals()
    of_x, of_y = (1e3 / max(1, each.num_batches) for each in (x, y))  # runs are not equally long
    for name, first, second, unit in (
        ("time", x.wall_s, y.wall_s, "s"),
        ("samples a second, from the first batch on", x.rate, y.rate, ""),
        *(
            (f"of a step: {WORDS[name]}", first_s * of_x, second_s * of_y, "ms")
            for name, first_s, second_s in zip(Split._fields, a.split(), b.split(), strict=True)
            if first_s or second_s
        ),
    ):
        ratio = f"{second / first:.2f}x" if first else ""
        rows.append([name, *(f"{value:,.1f} {unit}".rstrip() for value in (first, second)), ratio])
    return {"heads": ["", f"#{name_a}", f"#{name_b}", f"#{name_b} / {name_a}"], "rows": rows}
