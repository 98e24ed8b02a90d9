"""The folder of run logs: where it is, what they are called, and how many are kept.

Promise: nothing but files of our own name is ever removed, and none of a run that lasts.
"""

import contextlib
import fcntl
import os
import re
from collections.abc import Mapping
from pathlib import Path

NUM_KEPT, KEPT_NBYTES = 100, 200 << 20  # runs, and all of them together; a day's is half a megabyte
_NAME = re.compile(r"\d{8}-\d{6}-\d+(?:-rank\d+)?(?:\.\d+)?\.jsonl")


def folder_of(environ: Mapping[str, str]) -> Path | None:
    """Return where logs are; None where there is no home. Source: XDG Base Directory Specification, 0.8."""
    state, home = environ.get("XDG_STATE_HOME"), environ.get("HOME")
    if state and Path(state).is_absolute():
        return Path(state, "stoker", "runs")
    if home and Path(home).is_absolute():
        return Path(home, ".local", "state", "stoker", "runs")
    return None


def logs_in(folder: Path) -> list[Path]:
    """Return the logs, the oldest first."""
    try:
        files = [file for file in folder.iterdir() if _NAME.fullmatch(file.name)]
    except OSError:
        return []
    return sorted(files, key=lambda file: file.stem)  # 7 before 7.2


def prune(folder: Path) -> None:
    """Remove the oldest logs, so that one more has room. Whoever writes one holds a lock on it."""
    kept, nbytes = 0, 0
    for file in reversed(logs_in(folder)):
        with contextlib.suppress(OSError):
            nbytes += file.stat().st_size
            kept += 1
            if kept < NUM_KEPT and nbytes < KEPT_NBYTES:
                continue
            if not is_written(file):
                file.unlink()


def is_written(file: Path) -> bool:
    """Whether somebody writes this log: the run lasts."""
    try:
        fd = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(fd)
    return False
