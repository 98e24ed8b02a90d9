"""A run, or two side by side, as one HTML file that needs nothing else: no script, no request.

Pure: runs in, text out.
"""

import html
import math
import shlex
from collections.abc import Sequence
from typing import Any, NamedTuple

from stoker.reports.metrics import names_of
from stoker.reports.summary import readable_nbytes, summary
from stoker.runs.buckets import Span, bounds_of
from stoker.runs.file import Run, Totals
from stoker.stalls.split import NOTHING, WORDS, Split, split_of, summed
from stoker.tables import clock, counted

LEAST_FRAC = 0.1  # of the steps' time, for something to be done about it
MANY_SLOW = 3  # steps whose batch took long to make
MAX_BARS = 240  # of a picture: a day's spans are more than a screen has room for
WIDTH, HEIGHT, LEFT, BOTTOM = 960, 220, 80, 28  # of a picture, in its own units
STYLE = """
:root { color-scheme: light dark; --paper: #fff; --ink: #1b1f24; --dim: #57606a; --line: #d0d7de;
  --data: #b3541e; --own: #9a6700; --copy: #1a7f64; --communication: #bf3989; --compute: #1f6feb; --other: #6e7781;
  --unseen: #1f6feb; --rate: #6e40c9 }
@media (prefers-color-scheme: dark) { :root { --paper: #0d1117; --ink: #e6edf3; --dim: #9198a1; --line: #30363d;
  --data: #f0883e; --own: #d4a72c; --copy: #3fb99a; --communication: #f778ba; --compute: #58a6ff; --other: #8b949e;
  --unseen: #58a6ff; --rate: #bc8cff } }
body { margin: 0 auto; max-width: 62rem; padding: 1rem; background: var(--paper); color: var(--ink);
  font: 15px/1.5 system-ui, sans-serif }
h1 { font-size: 1.3rem } h2 { font-size: 1.05rem; margin-top: 2rem } h1, h2, p, pre { overflow-wrap: anywhere }
pre { white-space: pre-wrap; border-left: 3px solid var(--line); padding-left: .8rem }
table { border-collapse: collapse; width: 100% } .wide { overflow-x: auto }
th, td { text-align: left; padding: .25rem .6rem .25rem 0; border-bottom: 1px solid var(--line); vertical-align: top }
td { min-width: 5rem } td.number, th.number { min-width: 0; text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap }
svg { width: 100%; height: auto; overflow: visible } svg text { fill: var(--dim); font: 11px system-ui, sans-serif }
.axis { stroke: var(--line) } .rate { fill: var(--rate) } .steps { fill: var(--compute) } .dim { color: var(--dim) }
@media (max-width: 40rem) { svg text { font-size: 24px } .wide thead, .wide td:empty { display: none }
  .wide tr { display: block; padding: .4rem 0; border-bottom: 1px solid var(--line) }
  .wide td, .wide td.number { display: inline-block; border: 0; padding: 0 .8rem 0 0; text-align: left; overflow-wrap: anywhere; white-space: normal }
  .wide td::before { content: attr(data-head) " "; color: var(--dim) } }
table.narrow { width: auto } .key { display: inline-block; width: .7em; height: .7em; margin-right: .3em }
"""


class Bar(NamedTuple):
    """Says what all loaders did in a part of the run."""

    at_s: float
    long_s: float
    num_samples: int
    split: Split


def page_of(runs: Sequence[Run], before: Run | None = None) -> str:
    """Return the page of a run, or of two: the second is compared with the first. before: a run as plain PyTorch, that
    the only one is compared with."""
    title = "stoker: " + " and ".join(run.name for run in runs)
    parts = [f"<h1>{_text(title)}</h1>"]
    if len(runs) == 2:
        parts.append(_comparison(runs[0], runs[1], "first", "second"))
    for run in runs:
        parts += _parts_of(run, with_name=len(runs) == 2)
    if before is not None:
        heading = f"<h2>Before and after: beside {_text(before.name)}</h2>"
        parts += [heading, _comparison(before, runs[0], "plain PyTorch", "with stoker")]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{_text(title)}</title><style>{STYLE}</style></head>\n<body><main>\n"
        + "\n".join(parts)
        + "\n</main></body></html>\n"
    )


def _parts_of(run: Run, with_name: bool) -> list[str]:
    about = run.about
    parts = [f"<h2>{_text(run.name)}</h2>"] if with_name else []
    parts.append(f"<p><code>{_text(' '.join(about['command']))}</code><br>")
    versions = f"stoker {about['stoker']}, Python {about['python']}, torch {about['torch']}"
    parts.append(
        f'<span class="dim">{_text(about["folder"])} on {_text(about["host"])}; {versions}</span></p>'
    )
    parts.append(f"<pre>{_text(_summary(run))}</pre>")
    if hints := hints_of(run):
        listed = "".join(f"<li>{_text(hint)}</li>" for hint in hints)
        parts += ["<h2>What to try next</h2>", f"<ol>{listed}</ol>"]
    bars = bars_of(run.spans)
    if bars:
        parts += ["<h2>Where the time of the steps went</h2>", _timeline(bars), _split(run.split())]
        parts += ["<h2>Samples a second</h2>", _rates(bars)]
    if run.steps:
        parts += ["<h2>How long steps took</h2>", _histogram(run.steps)]
    if run.slowest:
        parts += ["<h2>The slowest steps</h2>", _slowest(run)]
    if run.report:
        parts += ["<h2>Loaders</h2>", _loaders(run.report["loaders"])]
        parts += _ways(run.report)
    if any(run.memory):
        first, most = map(readable_nbytes, run.memory)
        parts.append(
            f"<p>Memory of workers and what they start: {first} at first, {most} at most.</p>"
        )
    if about["settings"]:
        rows = [[name, value] for name, value in about["settings"].items()]
        parts += ["<h2>Settings that were given</h2>", _table(["setting", "value"], rows)]
    return parts


def _summary(run: Run) -> str:
    if run.report:
        return summary(run.report).replace("stoker: ", "").rstrip()
    return (
        "The run lasts."
        if run.lasts
        else "The log ends in the middle: the machine went down, or what keeps the log."
    )


def hints_of(run: Run) -> list[str]:
    """Return what to try, by what took the time; none for a run without a step.

    What each would bring is for `stoker doctor` to say, which tries it out.
    """
    split = run.split()
    total_s = sum(split)
    if not total_s:
        return []
    command = shlex.join(run.about["command"])
    found = []
    if split.data_s + split.own_s >= LEAST_FRAC * total_s:
        found.append(
            f"stoker doctor -- {command}: predicts what workers, memory and machines would bring"
        )
        if run.about["settings"].get("off"):
            found.append(f"stoker run -- {command}: this run was plain PyTorch")
    if split.copy_s >= LEAST_FRAC * total_s:
        found.append(
            "pin_memory=True in the loader and non_blocking=True in .to(): copies beside the model's work"
        )
    if split.communication_s >= LEAST_FRAC * total_s and not run.about["settings"].get("gradients"):
        found.append(
            f"stoker probe -- {command}: measures the links, and what compressed gradients would bring"
        )
    if split.other_s >= LEAST_FRAC * total_s:
        found.append(
            "the script's own Python: a profiler (py-spy record) shows the lines; print and logging in each step are usual"
        )
    if sum(1 for slow in run.slowest if slow.why) >= MANY_SLOW:
        found.append("a few samples are slow to make: the table of slowest steps names them")
    return found


# ---- the pictures


def bars_of(spans: Sequence[Span]) -> list[Bar]:
    """Return all loaders' rows together, in MAX_BARS bars at most. A bar whose steps took longer than it lasts begins
    as much earlier, but not before the one before it ends."""
    if not spans:
        return []
    end_s = spans[-1].at_s + spans[-1].long_s
    long_s = max(end_s / MAX_BARS, min(span.long_s for span in spans))
    bars: dict[int, Bar] = {}
    for span in spans:
        place = int(span.at_s / long_s)
        bar = bars.get(place) or Bar(span.at_s, span.long_s, 0, NOTHING)
        splits = [split_of(row.wait_s, row.busy_s, row.seen) for row in span.rows]
        num_samples = bar.num_samples + sum(row.num_samples for row in span.rows)
        split = summed([bar.split, *splits])
        bars[place] = Bar(bar.at_s, span.at_s + span.long_s - bar.at_s, num_samples, split)
    found: list[Bar] = []
    before_s = 0.0
    for _, bar in sorted(bars.items()):
        end_s = bar.at_s + bar.long_s
        at_s = max(before_s, min(bar.at_s, end_s - sum(bar.split)))
        found.append(bar._replace(at_s=at_s, long_s=end_s - at_s))
        before_s = end_s
    return found


def _timeline(bars: Sequence[Bar]) -> str:
    """Draw bars of equal height, of which waiting is the lowest part."""
    end_s = bars[-1].at_s + bars[-1].long_s
    drawn = []
    for bar in bars:
        x, width = _x(bar.at_s, end_s), max(0.5, (WIDTH - LEFT) * bar.long_s / end_s - 0.5)
        total_s, y = sum(bar.split), float(HEIGHT)
        drawn.append(f"<g><title>{clock(bar.at_s)}: {_text(_in_words(bar.split))}</title>")
        for name, part_s in bar.split._asdict().items():
            if part_s:
                height = HEIGHT * part_s / total_s
                y -= height
                drawn.append(
                    f'<rect fill="var({_color(name)})" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" '
                    f'height="{height:.1f}"/>'
                )
        drawn.append("</g>")
    whole = summed(bar.split for bar in bars)
    label = f"{whole.data_s / (sum(whole) or 1):.0%} of the steps' time was waiting for data"
    left = f'<text x="{LEFT - 6}" y="20" text-anchor="end">100 %</text>'
    left += f'<text x="{LEFT - 6}" y="{HEIGHT}" text-anchor="end">0</text>'
    return _svg(label, "".join(drawn) + _clocks(end_s) + left)


def _color(name: str) -> str:
    """name: of a part of a Split."""
    return f"--{name.removesuffix('_s')}"


def _in_words(split: Split) -> str:
    total_s = sum(split) or 1.0
    shares = [(WORDS[name], part_s / total_s) for name, part_s in _largest(split)]
    return ", ".join(f"{words} {share:.0%}" for words, share in shares if share >= 0.005)


def _largest(split: Split) -> list[tuple[str, float]]:
    """Return the parts that are more than nothing, the largest first."""
    parts = [(name, part_s) for name, part_s in split._asdict().items() if part_s > 0]
    return sorted(parts, key=lambda part: -part[1])


def _split(split: Split) -> str:
    """Return the legend of the timeline, with numbers."""
    total_s = sum(split) or 1.0
    rows = "".join(
        f'<tr><td><span class="key" style="background:var({_color(name)})"></span>{_text(WORDS[name])}</td>'
        f'<td class="number">{part_s:,.1f} s</td><td class="number">{part_s / total_s:.1%}</td></tr>'
        for name, part_s in _largest(split)
    )
    return f'<table class="narrow"><tbody>{rows}</tbody></table>'


def _rates(bars: Sequence[Bar]) -> str:
    end_s = bars[-1].at_s + bars[-1].long_s
    rates = [bar.num_samples / bar.long_s for bar in bars]
    top = max(rates) or 1.0
    drawn = []
    for bar, rate in zip(bars, rates, strict=True):
        x, width = _x(bar.at_s, end_s), max(0.5, (WIDTH - LEFT) * bar.long_s / end_s - 0.5)
        height = HEIGHT / 2 * rate / top
        drawn.append(
            f"<g><title>{clock(bar.at_s)}: {rate:,.0f} samples a second</title>"
            f'<rect class="rate" x="{x:.1f}" y="{HEIGHT - height:.1f}" width="{width:.1f}" height="{height:.1f}"/></g>'
        )
    mean = sum(bar.num_samples for bar in bars) / (end_s - bars[0].at_s)
    left = f'<text x="{LEFT - 6}" y="{HEIGHT / 2 + 20}" text-anchor="end">{top:,.0f}</text>'
    label = f"{mean:,.0f} samples a second, at most {top:,.0f}"
    return _svg(label, "".join(drawn) + _clocks(end_s) + left, HEIGHT / 2)


def _clocks(end_s: float) -> str:
    return _ticks([(0.0, "0 s"), (end_s / 2, clock(end_s / 2)), (end_s, clock(end_s))], end_s)


def _histogram(steps: Sequence[tuple[int, int]]) -> str:
    first, last = steps[0][0], steps[-1][0]
    most = max(num for _, num in steps)
    total = sum(num for _, num in steps)
    width = (WIDTH - LEFT) / (last - first + 1)
    drawn = []
    for bin_, num in steps:
        low_s, high_s = bounds_of(bin_)
        height = HEIGHT * num / most
        drawn.append(
            f"<g><title>{_seconds(low_s)} to {_seconds(high_s)}: {counted(num, 'step')}, {num / total:.1%}</title>"
            f'<rect class="steps" x="{LEFT + (bin_ - first) * width:.1f}" y="{HEIGHT - height:.1f}" '
            f'width="{max(0.5, width - 1):.1f}" height="{height:.1f}"/></g>'
        )
    ends = [(0.0, _seconds(bounds_of(first)[0])), (1.0, _seconds(bounds_of(last)[1]))]
    label = f"{counted(total, 'step')}, from {ends[0][1]} to {ends[1][1]}"
    return _svg(label, "".join(drawn) + _ticks(ends, 1.0))


def _svg(label: str, body: str, top: float = 0) -> str:
    """top: where the picture begins, above which nothing is drawn."""
    return (
        f'<svg viewBox="0 {top:g} {WIDTH} {HEIGHT + BOTTOM - top:g}" role="img" aria-label="{_text(label)}">{body}'
        f'<line class="axis" x1="{LEFT}" x2="{WIDTH}" y1="{HEIGHT}" y2="{HEIGHT}"/></svg>'
        f'<p class="dim">{_text(label)}</p>'
    )


def _ticks(ticks: Sequence[tuple[float, str]], end: float) -> str:
    anchors = {0: "start", len(ticks) - 1: "end"}
    return "".join(
        f'<text x="{_x(at, end):.1f}" y="{HEIGHT + BOTTOM - 6}" text-anchor="{anchors.get(k, "middle")}">{_text(word)}</text>'
        for k, (at, word) in enumerate(ticks)
    )


def _x(at: float, end: float) -> float:
    return LEFT + (WIDTH - LEFT) * at / end


# ---- the tables


def _slowest(run: Run) -> str:
    places = run.names
    rows = [
        [
            clock(s.at_s), places.get(s.number, ""), f"{s.batch:,}", _seconds(s.step_s), _seconds(s.wait_s),
            "; ".join(filter(None, (_in_words(split_of(s.wait_s, s.step_s - s.wait_s, s.seen)), s.why))),
        ]
        for s in run.slowest
    ]  # fmt: skip
    return _table(["at", "loader", "#batch", "#took", "#of it waited", "what took it"], rows)


def _loaders(loaders: Sequence[dict[str, Any]]) -> str:
    rows = []
    for loader, name in zip(loaders, names_of(loaders), strict=True):
        by = counted(loader["chains"], "worker") if loader["chains"] else "other cores"
        if not loader["offloaded"]:
            by = f"plain PyTorch: {'; '.join(loader['reasons']) or 'asked to'}"
        rows.append(
            [
                name, f"{loader['num_batches']:,}", f"{loader['num_samples']:,}",
                f"{loader['wait_s']:,.1f} s", f"{loader['busy_s']:,.1f} s", "; ".join([by, *loader["notes"]]),
            ]
        )  # fmt: skip
    return _table(["loader", "#batches", "#samples", "#waited", "#all else", "made by"], rows)


def _ways(report: dict[str, Any]) -> list[str]:
    """Return what was remembered and what was made faster, each if anything was."""
    parts = []
    remembered = [
        [
            each["place"], each["phase"], f"{each['num_hits']:,}", f"{each['num_checked']:,}",
            *(f"{each[name]:,.1f} s" for name in ("learn_s", "prove_s", "write_s", "saved_s")), each["why"],
        ]
        for each in (report["cache"] or {"places": ()})["places"]
    ]  # fmt: skip
    if remembered:
        heads = [
            "place", "phase", "#found", "#compared", "#learning took", "#proving", "#writing", "#saved",
            "left alone because",
        ]  # fmt: skip
        parts += ["<h2>Remembered work</h2>", _table(heads, remembered)]
    fast = [
        [each["place"], f"{each['num_made']:,}", f"{each['num_checked']:,}", each["why"]]
        for each in report["fast"] or ()
    ]
    if fast:
        heads = ["way", "#results", "#compared", "left alone because"]
        made = sum(each["num_made"] for each in report["fast"])
        head = f"<summary>{made:,} results in {counted(len(fast), 'way')}</summary>"
        parts += ["<h2>Faster functions</h2>", f"<details>{head}{_table(heads, fast)}</details>"]
    return parts


def _comparison(a: Run, b: Run, name_a: str, name_b: str) -> str:
    rows = []
    x, y = a.totals(), b.totals()
    for name, first, second, unit in (
        ("time", x.wall_s, y.wall_s, "s"),
        ("samples a second, from the first batch on", x.rate, y.rate, ""),
        *(
            (f"of a step: {WORDS[name]}", _of_step(first_s, x), _of_step(second_s, y), "ms")
            for name, first_s, second_s in zip(Split._fields, a.split(), b.split(), strict=True)
            if first_s or second_s
        ),
    ):
        ratio = f"{second / first:.2f}x" if first else ""
        rows.append([name, _amount(first, unit), _amount(second, unit), ratio])
    return _table(["", f"#{name_a}", f"#{name_b}", f"#{name_b} / {name_a}"], rows)


def _of_step(seconds: float, totals: Totals) -> float:
    """Return milliseconds of a step, for runs that are not equally long."""
    return 1e3 * seconds / max(1, totals.num_batches)


def _table(heads: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """heads: of a column of numbers it begins with #."""
    marks = [' class="number"' if head.startswith("#") else "" for head in heads]
    head = "".join(
        f"<th{mark}>{_text(word.removeprefix('#'))}</th>"
        for mark, word in zip(marks, heads, strict=True)
    )
    body = "".join(
        "<tr>"
        + "".join(
            f'<td{mark} data-head="{_text(word.removeprefix("#"))}">{_text(cell)}</td>'
            for mark, word, cell in zip(marks, heads, row, strict=True)
        )
        + "</tr>"
        for row in rows
    )
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _text(value: object) -> str:
    return html.escape(str(value))


def _amount(value: float, unit: str) -> str:
    return f"{value:,.1f} {unit}".rstrip()


def _seconds(value: float) -> str:
    if value >= 1:
        return f"{value:.1f} s"
    digits = max(0, 1 - math.floor(math.log10(max(value * 1e3, 1e-3))))
    return f"{value * 1e3:.{min(digits, 2)}f} ms"
