"""Removes old reports from where --report-json points, before a run.

Promise: removes only reports of stoker, and an empty file of exactly the name that was given.
Whatever else is in the way ends the command before anything is started.
"""

import os
import stat
from os.path import basename, dirname, isdir, join, splitext

from stoker.errors import ConfigError

KEYS = {"version", "ended", "wall_s", "loaders", "workers", "trainer"}  # docs/report.md


def make_room(file: str) -> None:
    """Remove FILE and FILE of each rank, which the processes of this run write anew.

    file: an absolute path. Raises ConfigError if FILE is something other than a report, or cannot
    be written.
    """
    if isdir(file) or not isdir(dirname(file)):
        raise ConfigError(f"--report-json: {file} is a folder, or lies in one that does not exist")
    rank = os.environ.get("RANK", "")
    if not rank:
        _remove_named(file)
    stem, suffix = splitext(basename(file))
    for name in _names_in(dirname(file)):
        middle = name[len(stem) + 1 : len(name) - len(suffix)]
        is_rank = name == f"{stem}.{middle}{suffix}" and middle.isascii() and middle.isdecimal()
        of_rank = join(dirname(file), name)
        if is_rank and rank in ("", middle) and is_report(of_rank, int(middle)):
            _unlink(of_rank)


def _names_in(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError as error:
        raise ConfigError(f"--report-json: {folder}: {error.strerror}") from None


def _remove_named(file: str) -> None:
    try:
        found = os.lstat(file)
    except FileNotFoundError:
        return
    except OSError as error:
        raise ConfigError(f"--report-json: {file}: {error.strerror}") from None
    if not stat.S_ISREG(found.st_mode):
        raise ConfigError(f"--report-json: {file} is a link or a device; name a file")
    if found.st_size and not is_report(file, None):
        raise ConfigError(
            f"--report-json: {file} is there and is no report of stoker; remove it, or name another"
        )
    _unlink(file)


def is_report(file: str, rank: int | None) -> bool:
    """Whether it is a report that stoker wrote for this rank; None: for any process."""
    import json  # 5 ms, for the rarer case

    try:
        if not stat.S_ISREG(os.lstat(file).st_mode):
            return False
        with open(file, encoding="utf-8") as opened:
            found = json.load(opened)
    except (OSError, ValueError, RecursionError):
        return False
    is_ours = isinstance(found, dict) and found.keys() >= KEYS and found["version"] is not None
    return is_ours and (rank is None or found.get("rank") == rank)


def _unlink(file: str) -> None:
    try:
        os.unlink(file)
    except OSError as error:
        raise ConfigError(f"--report-json: cannot replace {file}: {error.strerror}") from None
