"""Formats what `stoker verify` prints: a table by loader, the verdict, and the likely reason.

Pure: a verdict in, text out.
"""

from stoker.tables import aligned
from stoker.verify.compare import Difference, Row, Verdict, likely_reasons
from stoker.verify.record import Finding, Side

HEAD = ("loader", "batches", "offloaded", "verdict")


def table(rows: list[Row]) -> str:
    """Return the lines of the table, its head included; ends with a newline."""
    return aligned([HEAD, *map(_cells, rows)], right=[1], indent=2)


def _cells(row: Row) -> tuple[str, str, str, str]:
    place = f"{row.place} (rank {row.rank})" if row.rank else row.place
    return place, f"{row.num_compared:,}", row.offload, row.verdict


def left(side: Side) -> str:
    """Return a line on what is left to torch because of its version; empty: nothing is."""
    names = dict.fromkeys(name for process in side.processes for name in process.left)
    return f"left to torch because of its version: {', '.join(names)}\n" if names else ""


def equal(verdict: Verdict) -> str:
    return (
        f"equal: {verdict.num_compared:,} batches, and the training process's generators "
        "after each\n"
    )


def ended(side: Side) -> str:
    code = side.exit_code
    return f"is killed by signal {-code}" if code and code < 0 else f"ends with exit code {code}"


def different(first: Difference) -> str:
    text = f"different: {first.what}; two plain runs are equal\n"
    return text + (reason(first, False) if first.loader is not None else "")


def undecided(first: Difference, plain_first: Difference) -> str:
    """Report that plain runs differ. first: plain and ours; plain_first: the two plain runs."""
    return (
        f"undecided: the plain script differs from itself: {plain_first.what}; so nothing can be "
        f"said about stoker\n{reason(plain_first if plain_first.loader else first, True)}"
    )


def reason(difference: Difference, plain_differs: bool) -> str:
    """Return one line: the likeliest reason, and what else was seen."""
    found = likely_reasons(difference, plain_differs)
    if not found:
        return (
            "likely reason: none seen in the code behind the loader; a file that the runs write "
            "and read (try --sandbox), a generator with a seed of its own, or a device may be one\n"
        )
    text = f"likely reason: {_place(found[0])}"
    if found[1:]:
        text += f"; also seen: {', '.join(map(_place, found[1:]))}"
    return f"{text}\n"


def _place(finding: Finding) -> str:
    inside = f" (in {finding.inside})" if finding.inside else ""
    return f"{finding.word} at {finding.place}{inside}"
