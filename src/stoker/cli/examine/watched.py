"""Runs a subcommand's action in a temporary folder; handles signals and failed starts.

Promise: whatever ends us, what we have started is ended first.
"""

import signal
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from stoker import speak
from stoker.cli import run
from stoker.verify.runner import CannotStart


class _Ended(BaseException):
    """Raised if a signal asks us to end. number: the signal's."""

    def __init__(self, number: int) -> None:
        self.number = number


def watched(action: Callable[[Path], int]) -> int:
    """Run the action with an empty folder and return its exit code; 126, 127 if its command cannot
    be started, 128 + N after signal N."""
    try:
        with _ended_by_signals(), tempfile.TemporaryDirectory(prefix="stoker-") as folder:
            return action(Path(folder))
    except _Ended as ended:
        return 128 + ended.number
    except CannotStart as cannot:
        if isinstance(cannot.error, FileNotFoundError):
            say(f"command not found: {cannot.program}")
            return run.NOT_FOUND
        say(f"cannot run {cannot.program}: {cannot.error.strerror}")
        return run.CANNOT_EXECUTE


def say(text: str) -> None:
    speak.say(text)


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """End the runs at the first SIGINT, SIGTERM or SIGHUP; ignore those that come meanwhile."""
    numbers = [
        number
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        if signal.getsignal(number) is not signal.SIG_IGN  # nohup, or a shell's background
    ]

    def end(number: int, frame: object) -> None:
        for each in numbers:
            signal.signal(each, signal.SIG_IGN)
        raise _Ended(number)

    before = {number: signal.signal(number, end) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
