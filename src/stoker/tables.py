"""Puts numbers and tables in words, for commands that print them.

Pure: standard library only.
"""

from collections.abc import Sequence


def aligned(rows: Sequence[Sequence[str]], right: Sequence[int] = (), indent: int = 0) -> str:
    """Return the rows as lines, two spaces between columns, nothing after the last one.

    right: columns that end, not begin, at the same place, by number; indent: spaces before each line.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = (
        "  ".join(
            cell.rjust(width) if number in right else cell.ljust(width)
            for number, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    )
    return "".join(f"{' ' * indent}{line.rstrip()}\n" for line in lines)


def counted(num: int, one: str, more: str = "") -> str:
    """Return a number and its noun: `1 batch`, `1,250 batches`. more: the plural, if not with s."""
    return f"{num:,} {one if num == 1 else more or one + 's'}"


def clock(value: float) -> str:
    """Return a moment of a run, in seconds from its beginning on, as people read it: 12 s, 3:05, 2:00:00."""
    whole = round(value)
    hours, minutes, seconds = whole // 3600, whole // 60 % 60, whole % 60
    if hours:
        return f"{hours}:{minutes:02}:{seconds:02}"
    return f"{minutes}:{seconds:02}" if minutes else f"{seconds} s"
