"""The progress line in a terminal: it is seen, disturbs nobody's bars, and leaves nothing."""

import os
import pty
import re
import subprocess
import sys
import termios
from concurrent.futures import ThreadPoolExecutor

import pyte
import pytest

from tests.process.harness import ENVIRON, PATIENCE_S, SCRIPTS, under_stoker

ROWS, COLUMNS = 40, 100
LINE = b"batches, waited "


def in_terminal(command, tmp_path, **environ):
    """What a command writes to a terminal, all of it."""
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (ROWS, COLUMNS))
    own = {"TERM": "xterm-256color", "TMPDIR": str(tmp_path), "HOME": str(tmp_path)} | environ
    process = subprocess.Popen(
        command, env={k: v for k, v in ENVIRON.items() if k not in ("NO_COLOR", "CI")} | own,
        cwd=SCRIPTS, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
    )  # fmt: skip
    os.close(theirs)
    written = b""
    try:
        while piece := _read(ours):
            written += piece
        assert process.wait(PATIENCE_S) == 0, written
    finally:
        process.kill()
        process.wait()
        os.close(ours)
    return written


def _read(fd):
    try:
        return os.read(fd, 1 << 16)
    except OSError:  # nobody has the other end any more
        return b""


def screen(written):
    shown = pyte.Screen(COLUMNS, ROWS)
    pyte.ByteStream(shown).feed(written)
    return [row.rstrip() for row in shown.display]


@pytest.fixture(scope="module")
def sides(tmp_path_factory):
    """Both at once: they mostly wait."""
    script = [sys.executable, "progress.py", "none", "tqdm", "rich"]
    folder = tmp_path_factory.mktemp("progress")
    with ThreadPoolExecutor(2) as pool:
        commands = [script, [*under_stoker(quiet=False), *script]]
        return tuple(pool.map(lambda command: in_terminal(command, folder), commands))


def test_the_screen_is_at_the_end_as_without_stoker_but_for_the_summary(sides):
    plain, ours = map(screen, sides)
    summary = next(k for k, row in enumerate(ours) if row.startswith("stoker: "))
    rows = plain.index("")
    assert "end of rich" in plain[rows - 1]
    assert ours[:summary] == plain[:rows]
    assert not any(b"stoker" in row.encode() for row in ours[:summary])
    assert LINE not in "\n".join(ours[summary:]).encode()


def test_it_is_seen_where_nobody_else_draws(sides):
    ours = sides[1]
    bare, end, bars = ours.partition(b"end of none")
    assert end
    assert LINE in bare
    assert LINE not in bars.partition(b"end of rich")[0]
    before_wipe = bare[: bare.rindex(LINE) + 30]
    rows = screen(before_wipe)
    assert rows[0] == "the loop begins"
    assert any(row.startswith("stoker: progress.py:") for row in rows[1:])


@pytest.mark.full  # it needs a framework
@pytest.mark.parametrize("bar", ["TQDMProgressBar", "RichProgressBar"])
def test_lightnings_bars_are_not_disturbed(tmp_path, bar):
    pytest.importorskip("lightning", reason="Lightning is not installed; scripts/setup full does")
    script = [sys.executable, "lightning_bars.py", bar]
    commands = [script, [*under_stoker(quiet=False), *script]]
    with ThreadPoolExecutor(2) as pool:
        plain, ours = pool.map(lambda command: in_terminal(command, tmp_path), commands)
    assert LINE not in ours
    shown = [[re.sub(r"[\d.]+", "N", row) for row in screen(side)] for side in (plain, ours)]
    rows = shown[0].index(f"end of {bar}") + 1
    assert shown[1][:rows] == shown[0][:rows]
    assert shown[1][rows].startswith("stoker: ")


def test_on_a_terminal_that_knows_no_escape_sequence_there_is_none(tmp_path):
    command = [*under_stoker("--progress=on", quiet=False), sys.executable, "progress.py", "none"]
    written = in_terminal(command, tmp_path, TERM="dumb")
    assert b"\x1b" not in written
    assert LINE not in written
    assert b"stoker: " in written  # the summary
