"""Logs of real runs: whatever ends them, whatever is in the way; `stoker runs` and `stoker report`."""

import json
import os
import pty
import re
import signal
import subprocess
import sys
import termios
import time

import pyte
import pytest

from stoker.runs.file import read
from stoker.runs.folder import logs_in
from tests.process.harness import ENVIRON, PATIENCE_S, finished, marked, started, under_stoker


def logs_of(folder):
    return [read(file) for file in logs_in(folder / "state" / "stoker" / "runs")]


def stoker(folder, *words):
    environ = ENVIRON | {"XDG_STATE_HOME": str(folder / "state")}
    command = [sys.executable, "-m", "stoker", *words]
    return subprocess.run(command, env=environ, cwd=folder, capture_output=True, text=True)


def test_a_run_is_listed_shown_and_compared(tmp_path):
    for _ in range(2):
        command = [*under_stoker(quiet=False), sys.executable, "train.py", "end"]
        result = finished(command, tmp_path)
        assert (result.returncode, result.left_files()) == (0, []), result.stderr
    first, second = logs_of(tmp_path)
    assert first.report["ended"] == "exit"
    assert sum(row.num_batches for span in first.spans for row in span.rows) == 16
    assert sum(row.num_samples for span in first.spans for row in span.rows) == 64
    assert sum(num for _, num in first.steps) == 16
    assert first.about["command"][1:] == ["train.py", "end"]
    lines = stoker(tmp_path, "runs").stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["run", first.name, second.name]
    told = [json.loads(line) for line in stoker(tmp_path, "runs", "--json").stdout.splitlines()]
    assert [(run["name"], run["num_batches"]) for run in told] == [
        (first.name, 16),
        (second.name, 16),
    ]
    shown = stoker(tmp_path, "report")
    assert (shown.returncode, shown.stdout) == (0, "stoker-report.html\n")
    assert second.name in (tmp_path / "stoker-report.html").read_text()
    both = stoker(tmp_path, "report", "--html", "both.html", first.name, second.name)
    assert both.returncode == 0
    assert "second / first" in (tmp_path / "both.html").read_text()
    whole = json.loads(stoker(tmp_path, "report", "--json", first.name).stdout)
    assert whole["report"]["loaders"][0]["num_batches"] == 16
    table = stoker(tmp_path, "report", "--csv", first.name).stdout.splitlines()
    assert table[0].startswith("run,at_s,long_s,loader,num_batches")
    assert "train.py:" in table[1]


def test_loaders_of_one_line_are_told_apart(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(
        "from torch.utils.data import DataLoader\n"
        "loaders = {'train': DataLoader(range(40), batch_size=4), 'val': DataLoader(range(12), batch_size=6)}\n"
        "loaders['test'] = DataLoader(range(12), batch_size=6)\n"
        "for phase in loaders:\n"
        "    for _ in loaders[phase]: pass\n"
    )
    command = [*under_stoker(quiet=False), sys.executable, str(script)]
    told = finished(command, tmp_path).stderr
    assert stoker(tmp_path, "report").returncode == 0
    page = (tmp_path / "stoker-report.html").read_text()
    table = stoker(tmp_path, "report", "--csv").stdout
    train, val = "(range, 40 samples, batch_size=4)", "(range, 12 samples, batch_size=6)"
    for loader in (f"train.py:5 {train}", f"train.py:5 {val}", f"train.py:5 {val} #2"):
        assert f"{loader}: " in told
        assert f'{loader}"' in page
        assert f'{loader}",' in table


def test_slow_steps_are_named_by_sample_and_function(tmp_path):
    command = [*under_stoker(quiet=False), sys.executable, "slow_samples.py"]
    assert finished(command, tmp_path).returncode == 0
    (run,) = logs_of(tmp_path)
    first_nbytes, most_nbytes = run.memory  # it lasts for some seconds, in which the keeper looks
    assert 1 << 20 < first_nbytes <= most_nbytes
    # A busy machine makes others slow, too.
    slow = [step for step in run.slowest if step.step_s > 0.3 and "sample" in step.why]
    assert len(slow) == 6  # in each of two epochs three
    first, *later = sorted(slow, key=lambda step: step.at_s)
    assert "samples 64, 65, 66 and 1 more" in first.why
    named = [step.why for step in later if "for 0." in step.why]
    assert len(named) == 5  # the next epoch's worker looks at itself from its first batch on
    for why in named:
        assert re.search(
            r"sample (67|131|203) for 0\.[34]\d s, most of it in decode \(slow_samples\.py:16\)",
            why,
        )
        assert "called by __getitem__ (slow_samples.py:25)" in why
    shown = stoker(tmp_path, "report")
    assert shown.returncode == 0
    page = (tmp_path / "stoker-report.html").read_text()
    assert "most of it in decode" in page
    assert "memory of workers and what they start: " in page


@pytest.mark.parametrize("end", ["SIGKILL", "os._exit", "raise", "exec", "abort"])
@pytest.mark.few(2)
def test_whatever_ends_a_run_its_log_is_whole(tmp_path, end):
    result = finished([*under_stoker(quiet=False), sys.executable, "train.py", end], tmp_path)
    assert result.leftovers == {}
    (run,) = logs_of(tmp_path)
    assert run.report is not None and not run.lasts
    assert sum(row.num_batches for span in run.spans for row in span.rows) >= 4


def test_a_run_that_lasts_is_told_so_and_one_whose_keeper_was_killed_was_lost(tmp_path):
    command = [*under_stoker(quiet=False), sys.executable, "train.py", "wait"]
    with started(command, tmp_path) as running:
        running.wait_for("in the loop")
        end_s = time.monotonic() + PATIENCE_S
        while not logs_of(tmp_path):  # the keeper writes once a second
            assert running.process.poll() is None and time.monotonic() < end_s
        assert "running" in stoker(tmp_path, "runs").stdout
        assert "The run lasts" in page(tmp_path)
        (keeper,) = [pid for pid, what in marked(running.mark).items() if "keeper.py" in what]
        os.kill(keeper, signal.SIGKILL)
        running.signal(signal.SIGTERM)
        running.finish()
    assert "lost" in stoker(tmp_path, "runs").stdout
    assert "ends in the middle" in page(tmp_path)


def test_a_run_is_compared_with_the_same_command_as_plain_pytorch(tmp_path):
    for flags in (["--off"], []):
        finished([*under_stoker(*flags, quiet=False), sys.executable, "train.py", "end"], tmp_path)
    plain, after = logs_of(tmp_path)
    shown = page(tmp_path)
    assert f"Before and after: beside {plain.name}" in shown
    assert stoker(tmp_path, "report", plain.name).returncode == 0
    assert "Before and after" not in (tmp_path / "stoker-report.html").read_text()
    finished([*under_stoker(quiet=False), sys.executable, "train.py", "raise"], tmp_path)
    assert "Before and after" not in page(tmp_path)  # another command
    assert after.report["loaders"][0]["offloaded"]


def page(folder):
    assert stoker(folder, "report").returncode == 0
    return (folder / "stoker-report.html").read_text()


def test_quiet_runs_and_those_that_want_none_have_no_log(tmp_path):
    for flags in (under_stoker(), under_stoker("--no-run-log", quiet=False)):
        assert finished([*flags, sys.executable, "train.py", "end"], tmp_path).returncode == 0
    assert logs_of(tmp_path) == []
    said = stoker(tmp_path, "runs")
    assert (said.returncode, said.stdout) == (0, "")
    assert "no run has been logged yet" in said.stderr


@pytest.mark.parametrize("what", ["a file in its place", "read only", "no home"])
def test_where_no_log_can_be_written_the_run_is_none_the_wiser(tmp_path, what):
    environ = {}
    if what == "a file in its place":
        (tmp_path / "state").write_text("mine")
    elif what == "read only":
        environ = {"XDG_STATE_HOME": "/proc"}
    else:
        environ = {"XDG_STATE_HOME": "", "HOME": ""}
    command = [*under_stoker(quiet=False), sys.executable, "train.py", "end"]
    result = finished(command, tmp_path, environ=environ)
    assert (result.returncode, result.stdout) == (0, "the end\n")
    assert result.leftovers == {}
    assert "Traceback" not in result.stderr
    assert "16 batches" in result.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nosuch"], "no run begins with 'nosuch'"),
        (["--html", "a", "--csv"], "give one of"),
        (["a", "b", "c"], "two runs at most"),
        (["--nosuch"], "unknown flag"),
    ],
)
def test_what_is_wrong_is_said(tmp_path, words, said):
    assert (
        finished(
            [*under_stoker(quiet=False), sys.executable, "train.py", "end"], tmp_path
        ).returncode
        == 0
    )
    result = stoker(tmp_path, "report", *words)
    assert result.returncode == 2
    assert said in result.stderr
    assert "Traceback" not in result.stderr


def test_a_page_that_cannot_be_written_is_told(tmp_path):
    assert (
        finished(
            [*under_stoker(quiet=False), sys.executable, "train.py", "end"], tmp_path
        ).returncode
        == 0
    )
    result = stoker(tmp_path, "report", "--html", "/proc/nothing.html")
    assert result.returncode == 1
    assert "the page was not written" in result.stderr


def in_terminal(folder, *words):
    """What `stoker` writes to a terminal of 80x24, and its exit code."""
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, 80))
    environ = ENVIRON | {
        "XDG_STATE_HOME": str(folder / "state"),
        "TERM": "xterm",
        "PYTHONUTF8": "1",
    }
    command = [sys.executable, "-m", "stoker", *words]
    process = subprocess.Popen(command, env=environ, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    return process, ours


def test_a_run_is_watched_in_a_terminal_until_it_ends(tmp_path):
    command = [*under_stoker(quiet=False), sys.executable, "train.py", "wait"]
    with started(command, tmp_path) as running:
        running.wait_for("in the loop")
        while not logs_of(tmp_path):  # the keeper writes once a second
            assert running.process.poll() is None
        process, terminal = in_terminal(tmp_path, "top")
        shown, written = pyte.Screen(80, 24), pyte.ByteStream()
        written.attach(shown)
        while not any("running" in row for row in shown.display):
            written.feed(os.read(terminal, 1 << 16))
        assert any(row.startswith("train.py:") or "/train.py:" in row for row in shown.display)
        running.signal(signal.SIGTERM)
        running.finish()
        rest = b""
        while True:
            try:
                rest += os.read(terminal, 1 << 16)
            except OSError:  # it has ended
                break
        assert process.wait(PATIENCE_S) == 0
        os.close(terminal)
    assert b"\x1b[?1049l" in rest  # the screen that was there before is there again
    assert "SIGTERM" in rest.rpartition(b"\x1b[?1049l")[2].decode()


def test_elsewhere_it_is_a_line_and_without_a_run_a_reason(tmp_path):
    assert stoker(tmp_path, "top").returncode == 2
    assert "no run lasts" in stoker(tmp_path, "top").stderr
    finished([*under_stoker(quiet=False), sys.executable, "train.py", "end"], tmp_path)
    (run,) = logs_of(tmp_path)
    told = stoker(tmp_path, "top", run.name)
    assert told.returncode == 0
    assert told.stdout.startswith(f"{run.name} exit ")
