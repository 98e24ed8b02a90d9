"""Chooses the file of a process's report, and writes it.

Promise: a reader sees an empty file or a whole report; nothing of anybody else's is overwritten,
and no link is followed. Problems are told, never raised.
"""

import contextlib
import functools
import json
import os
import stat
from pathlib import Path
from typing import Any

from stoker import speak


def own_file(asked: str | Path | None, rank: int | None) -> Path | None:
    """Create this process's report file, empty; None if none is asked for, or none can be written.

    The rank goes before the suffix, and a second process appends its pid.
    """
    if asked is None:
        return None
    file = Path(asked)
    if rank is not None:
        file = file.with_name(f"{file.stem}.{rank}{file.suffix}")
    try:
        os.close(os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
    except FileExistsError:
        return _other(file)
    except OSError as error:
        speak.say(f"no report can be written: {error}")
        return None
    return file


def write(report: dict[str, Any], file: Path) -> None:
    """Write the report in one step; under another name if the file has been taken meanwhile."""
    text = json.dumps(report, indent=1) + "\n"
    try:
        if not _is_free(file):
            file = _other(file)
            speak.say(f"the report is in {file}: another file has taken its name")
        speak.without_signals(functools.partial(_replace, file, text.encode()))
    except OSError as error:
        speak.say(f"the report was not written: {error}")


def _other(file: Path) -> Path:
    return file.with_name(f"{file.name}.{os.getpid()}")


def _is_free(file: Path) -> bool:
    """Whether nothing is there, or only the empty file by which this process reserved its name."""
    try:
        found = file.lstat()
    except FileNotFoundError:
        return True
    return stat.S_ISREG(found.st_mode) and not found.st_size


def _replace(file: Path, text: bytes) -> None:
    part = file.with_name(f"{file.name}.{os.urandom(6).hex()}.part")
    fd = os.open(part, os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_WRONLY, 0o666)
    try:
        with os.fdopen(fd, "wb") as opened:
            opened.write(text)
        part.replace(file)
    except BaseException:
        with contextlib.suppress(OSError):
            part.unlink()
        raise
