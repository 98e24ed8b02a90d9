"""Who runs below a process, and what CPU they have used. From /proc alone."""

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path


def children(pid: int) -> list[int]:
    found: list[int] = []
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            found += [int(child) for child in (task / "children").read_text().split()]
    return sorted(found)


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def descendants(pid: int) -> list[int]:
    return [one for child in children(pid) for one in (child, *descendants(child))]


def cpu_s_of(pid: int) -> float:
    """User and system time so far; 0 of a process that is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def pss_nbytes(pid: int) -> int:
    """Memory of a process, its shared pages divided by those who map them; 0 if it is gone."""
    try:
        told = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return 0
    return next(int(line.split()[1]) << 10 for line in told.splitlines() if line.startswith("Pss:"))


def cpu_s_of_all(pids: Iterable[int]) -> float:
    return sum(cpu_s_of(pid) for pid in pids)
