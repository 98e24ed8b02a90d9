"""What the README shows of the results: one script in three rows, and a plot of the others. Pure.

Numbers come from the newest results alone; the plot is an SVG, written so that equal results give an
equal file.
"""

import math
import statistics
from collections.abc import Callable
from typing import Any
from xml.sax.saxutils import escape

# figure -> the check of it that compares with torch -> what a reader calls the work
PLOTTED = (
    ("images", "torch", "photographs: decode, crop, flip, normalise"),
    ("frameworks", "torch, lightning", "the same through Lightning"),
    ("iterable", "torch", "text shards packed to tokens"),
    ("workers0-val", "torch", "photographs, num_workers=0"),
    ("workers0-tensors", "torch", "tensors in the script, num_workers=0"),
    ("clips", "torch", "video clips in memory"),
    ("tokens", "torch, astype", "tokens from uint16, large batches"),
    ("handover", "torch, stack", "38 MB batches that cost nothing to make"),
    ("handover-small", "torch, stack", "10 KB batches that cost nothing to make"),
)
ROW, LEFT, WIDTH, RIGHT, TOP = 26, 300, 300, 110, 34  # px


def three_rows(images: dict[str, Any]) -> str:
    """A Markdown table of the figure `images`: torch, stoker, and the same work without a loader."""
    pairs = images["cases"][0]["pairs"]
    medians = {
        side: statistics.median(pair[side]["images_per_s"] for pair in pairs)
        for side in ("plain", "stoker", "bare")
    }
    names = {
        "plain": "your script",
        "stoker": "under stoker",
        "bare": "the limit: the same work on the same cores, no loader",
    }
    plain = medians["plain"]
    rows = "".join(
        f"| {names[side]} | {value:,.0f} | {value / plain:.2f}x |\n"
        for side, value in medians.items()
    )
    return f"| | photographs a second | |\n|---|---|---|\n{rows}"


def plot(found: dict[str, dict[str, Any] | None]) -> str:
    """An SVG: how many times as fast as torch's own loader, median and spread, each work a bar."""
    rows = [
        (text, one)
        for name, what, text in PLOTTED
        for one in (found[name] or {"checks": []})["checks"]
        if one["what"] == what
    ]
    low = min([0.9, *(one["min"] for _, one in rows)])
    high = max([2.0, *(one["max"] for _, one in rows)])
    height = TOP + ROW * len(rows) + 8

    def x(value: float) -> str:
        """Where a value stands: equal factors are equally wide."""
        return f"{LEFT + WIDTH * math.log(value / low) / math.log(high / low):.1f}"

    ticks = "".join(
        f'<text x="{x(2**k)}" y="16" text-anchor="middle">{2**k}x</text>'
        f'<line x1="{x(2**k)}" x2="{x(2**k)}" y1="22" y2="{height}" class="tick"/>\n'
        for k in range(int(math.log2(high)) + 1)
    )
    bars = "".join(_bar(text, one, TOP + ROW * i, x) for i, (text, one) in enumerate(rows))
    return f"""\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {LEFT + WIDTH + RIGHT} {height}" role="img">
<title>Speed under stoker, as a multiple of torch's own DataLoader on the same cores</title>
<style>text{{font:13px sans-serif;fill:#777}}.bar{{stroke:#d9480f;stroke-width:16}}
.spread{{stroke:#777;stroke-width:2}}.tick{{stroke:#777;stroke-dasharray:2 4}}</style>
<text x="{LEFT - 8}" y="16" text-anchor="end">times as fast as torch's own loader</text>
{ticks}{bars}</svg>
"""


def _bar(text: str, one: dict[str, Any], top: int, x: Callable[[float], str]) -> str:
    """A work's name, its bar from 1x to the median, its spread, and the median in digits."""
    middle = top + 10
    return (
        f'<text x="{LEFT - 8}" y="{middle + 4}" text-anchor="end">{escape(text)}</text>'
        f'<line x1="{x(1)}" x2="{x(one["median"])}" y1="{middle}" y2="{middle}" class="bar"/>'
        f'<line x1="{x(one["min"])}" x2="{x(one["max"])}" y1="{middle}" y2="{middle}" class="spread"/>'
        f'<text x="{float(x(one["max"])) + 8:.1f}" y="{middle + 4}">{one["median"]:.2f}x</text>\n'
    )
