"""Signals reach the script and its workers, and nobody else."""

import signal
import sys
from collections import Counter

import pytest

from tests.process.harness import started, under_stoker


def told_after(running):
    """All lines told until the pipe is closed by the last who holds it."""
    lines = list(running.heard)
    while running._hear(10):
        lines += running.heard
        running.heard.clear()
    return Counter(lines)


def handled(prefix, folder, number, group):
    with started([*prefix, sys.executable, "handlers.py"], folder, stdin=None) as running:
        running.wait_for("in the loop")
        running.signal(number, group=group)
        if number == signal.SIGUSR1:
            seen = Counter(running.wait_for(f"handled {number}") for _ in range(3 if group else 1))
            running.say("go on")
        else:
            seen = Counter()
        result = running.finish()
        return result, seen + told_after(running)


@pytest.mark.few(2)
@pytest.mark.parametrize("group", [False, True], ids=["to the trainer", "to the group"])
@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGTERM])
def test_handlers_run_as_often_as_under_torch(tmp_path, number, group):
    plain, plain_seen = handled([], tmp_path / "plain", number, group)
    ours, ours_seen = handled(under_stoker(), tmp_path / "ours", number, group)
    assert ours_seen == plain_seen
    assert ours.stdout == plain.stdout
    assert ours.returncode == plain.returncode
    assert ours.leftovers == {}
