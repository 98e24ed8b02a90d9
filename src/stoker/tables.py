"""Aligns the columns of a table that a command prints.

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
