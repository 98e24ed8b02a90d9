"""`stoker top [RUN]`: shows a run of this machine while it lasts, in a terminal; elsewhere a line now and then."""

import contextlib
import os
import select
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from stoker import config
from stoker.cli.flags import parse
from stoker.cli.tell.report import of_name
from stoker.cli.tell.runs import logs
from stoker.errors import ConfigError
from stoker.runs.buckets import Span
from stoker.runs.file import Run, read
from stoker.runs.folder import is_written
from stoker.stalls.split import WORDS, Split, split_of, summed
from stoker.tables import aligned, clock, counted

USAGE = """\
usage: stoker top [RUN]

Show a run of this user on this machine while it lasts: its speed, and where the time of its steps goes.
RUN is a name that stoker runs lists, or the beginning of one; without it: the newest that lasts.
Where stdout is no terminal, a line every ten seconds. Ctrl-C ends it, and nothing of the run.

exit codes: 0; 2 wrong flags, or no such run
"""
FLAGS: tuple[config.Setting, ...] = ()
EVERY_S, LINE_EVERY_S = 1.0, 10.0  # a log grows once a second
RECENT_S = 60.0
BAR, MAX_BARS = 24, 48  # characters
# A bar's character, and those of a row of bars: of terminals that can, and of others.
BLOCKS, PLAIN = "\u2581\u2582\u2583\u2584\u2585\u2586\u2587\u2588", "_.-:=+*#"
MAX_LOADERS = 6
_ENTER, _LEAVE, _HOME, _REST = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l", "\x1b[H", "\x1b[J"


def main(words: list[str]) -> int:
    """Show the run until it ends, and return the exit code; see USAGE. Raises ConfigError."""
    flags, rest = parse(words, FLAGS, "top")
    if flags is None:
        print(USAGE, end="")
        return 0
    if len(rest) > 1:
        raise ConfigError(f"takes one run at most: {' '.join(rest)!r}")
    file = of_name(logs(), rest[0]) if rest else _newest()
    with contextlib.suppress(KeyboardInterrupt):
        if sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb":
            _watch(file)
        else:
            _tell(file)
    return 0


def _newest() -> Path:
    files = [file for file in logs() if is_written(file)]
    if not files:
        raise ConfigError("no run lasts: stoker runs lists those that have ended")
    return files[-1]


def _run(file: Path) -> Run:
    run = read(file)
    if run is None:
        raise ConfigError(f"no log can be read in {file}")
    return run


def _watch(file: Path) -> None:
    """Draw the run on a screen of its own, until it ends; what it was last stays below the prompt."""
    is_unicode = (sys.stdout.encoding or "").lower().startswith("utf")
    blocks = BLOCKS if is_unicode else PLAIN
    sys.stdout.write(_ENTER)
    try:
        while (run := _run(file)).lasts:
            size = shutil.get_terminal_size()
            lines = screen(run, size.columns, size.lines, blocks)
            sys.stdout.write(_HOME + "".join(f"{line}\x1b[K\r\n" for line in lines) + _REST)
            sys.stdout.flush()
            select.select((), (), (), EVERY_S)
    finally:
        sys.stdout.write(_LEAVE)
        sys.stdout.flush()
    print("\n".join(screen(run, *shutil.get_terminal_size(), blocks)))


def _tell(file: Path) -> None:
    while (run := _run(file)).lasts:
        print(line_of(run), flush=True)
        select.select((), (), (), LINE_EVERY_S)
    print(line_of(run), flush=True)


# ---- pure


def recent(spans: Sequence[Span]) -> list[Span]:
    """Return the spans of the last minute; of a long run the last one, which may be as long."""
    if not spans:
        return []
    end_s = spans[-1].at_s + spans[-1].long_s
    return [span for span in spans if span.at_s + span.long_s > end_s - RECENT_S] or [spans[-1]]


def split_recently(spans: Sequence[Span]) -> Split:
    rows = [row for span in spans for row in span.rows]
    return summed(split_of(row.wait_s, row.busy_s, row.seen) for row in rows)


def _rate(spans: Sequence[Span], number: int | None = None) -> float:
    """Return samples a second. number: of a loader; None: of all."""
    long_s = spans[-1].at_s + spans[-1].long_s - spans[0].at_s if spans else 0.0
    num = sum(
        row.num_samples for span in spans for row in span.rows if number in (None, row.number)
    )
    return num / long_s if long_s else 0.0


def line_of(run: Run) -> str:
    """Return a run as it is now, in one line."""
    last, totals = recent(run.spans), run.totals()
    split = split_recently(last)
    waited = (split.data_s + split.own_s) / (sum(split) or 1.0)
    return (
        f"{run.name} {run.state} {clock(totals.wall_s)}: {counted(totals.num_batches, 'batch', 'batches')}, "
        f"{_rate(last):,.0f} samples/s, waited {waited:.0%}"
    )


def screen(run: Run, width: int = 80, height: int = 24, blocks: str = PLAIN) -> list[str]:
    """Return the lines of a screen of this size, but for the last, on which a cursor may stand. blocks: characters for
    heights, the lowest first."""
    last, totals = recent(run.spans), run.totals()
    split = split_recently(last)
    lines = [
        f"stoker top  {run.name}  {run.state}, {clock(totals.wall_s)}",
        " ".join(run.about["command"]),
        "",
    ]
    rows, names = [["loader", "batches", "samples", "samples/s"]], run.names
    for loader in run.loaders[:MAX_LOADERS]:
        of_it = [row for span in run.spans for row in span.rows if row.number == loader["number"]]
        rows.append(
            [
                names[loader["number"]],
                f"{sum(row.num_batches for row in of_it):,}",
                f"{sum(row.num_samples for row in of_it):,}",
                f"{_rate(last, loader['number']):,.0f}",
            ]
        )
    lines += aligned(rows, right=(1, 2, 3)).splitlines()
    if len(run.loaders) > MAX_LOADERS:
        lines.append(f"and {len(run.loaders) - MAX_LOADERS} more")
    lines += ["", "where the last minute went"]
    total_s = sum(split)
    parts = sorted(split._asdict().items(), key=lambda part: -part[1])
    shares = (
        [(WORDS[name], part_s / total_s) for name, part_s in parts if part_s] if total_s else []
    )
    rows = [[words, blocks[-1] * round(BAR * share), f"{share:.0%}"] for words, share in shares]
    lines += aligned(rows, right=(2,), indent=2).splitlines() if rows else ["  no step yet"]
    lines += ["", f"samples/s {_sparks(last, blocks)}"] if last else []
    return [line[: width - 1] for line in lines][: height - 1]


def _sparks(spans: Sequence[Span], blocks: str) -> str:
    """Return the rates of spans as a row of bars."""
    shown = spans[-MAX_BARS:]
    # A step may be longer than a span, and its samples came in all of the time since the span before.
    ends_s = [shown[0].at_s, *(span.at_s + span.long_s for span in shown)]
    rates = [
        sum(row.num_samples for row in span.rows) / (end_s - before_s)
        for span, before_s, end_s in zip(shown, ends_s, ends_s[1:], strict=False)
    ]
    top = max(rates) or 1.0
    bars = "".join(blocks[round((len(blocks) - 1) * rate / top)] for rate in rates)
    return f"{bars} at most {top:,.0f}"
