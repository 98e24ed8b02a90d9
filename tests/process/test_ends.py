"""However a run ends, within two seconds nothing of ours is left, and the report tells how."""

import contextlib
import os
import signal
import sys

import pytest

from tests.process.harness import Running, finished, started, under_stoker

# end -> (argument of the script, what to send, to the group?, exit code, the report's `ended`)
ENDS = {
    "normal": ("end", None, False, 0, "exit"),
    "sys.exit": ("sys.exit", None, False, 5, "exit"),
    "sys.exit with text": ("sys.exit text", None, False, 1, "exit"),
    "exception in the step": ("raise", None, False, 1, "ValueError"),
    "os._exit": ("os._exit", None, False, 6, ""),
    "os.abort": ("abort", None, False, -signal.SIGABRT, "SIGABRT"),
    "kill -9": ("wait", signal.SIGKILL, False, -signal.SIGKILL, "SIGKILL"),
    "kill -9 of itself": ("SIGKILL", None, False, -signal.SIGKILL, "SIGKILL"),
    "kill -9 of the group": ("wait", signal.SIGKILL, True, -signal.SIGKILL, None),
    "SIGTERM": ("wait", signal.SIGTERM, False, -signal.SIGTERM, "SIGTERM"),
    "SIGTERM to the group": ("wait", signal.SIGTERM, True, -signal.SIGTERM, "SIGTERM"),
    "SIGHUP to the group": ("wait", signal.SIGHUP, True, -signal.SIGHUP, "SIGHUP"),
    "Ctrl-C": ("wait", signal.SIGINT, True, -signal.SIGINT, "KeyboardInterrupt"),
    "SIGQUIT to the group": ("wait", signal.SIGQUIT, True, -signal.SIGQUIT, "SIGQUIT"),
    "exec of something else": ("exec", None, False, 0, ""),
}
SITUATIONS = ["thread", "subprocess", "trainer-subprocess", "fork", "stuck", "persistent", "second"]
HARD_ENDS = ["kill -9", "SIGTERM", "Ctrl-C", "os._exit", "exception in the step"]


def run(tmp_path, end, *situations, quiet=True):
    argument, number, group, returncode, ended = ENDS[end]
    report = f"--report-json={tmp_path / 'report.json'}"
    command = [
        *under_stoker(report, quiet=quiet),
        sys.executable,
        "train.py",
        argument,
        *situations,
    ]
    with started(command, tmp_path) as running:
        running.wait_for("in the loop")
        if "stuck" in situations:
            running.wait_for("stuck")
        if number is not None:
            running.signal(number, group=group)
        users = users_processes(running)
        result = running.finish(but=users)
        for pid in users:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    assert result.leftovers == {}
    assert result.returncode == returncode, result.stderr
    assert result.left_files() == []
    return result, ended


def users_processes(running: Running) -> set[int]:
    running.process.wait(60)
    while running._hear(0):
        continue
    return {int(line.split()[1]) for line in running.heard if line.startswith("users ")}


def check_report(report, ended, *situations):
    assert report is not None, "no report was written"
    told = report["ended"]
    # Whoever waits for the process may collect its status before the keeper has looked at it.
    assert ended in told or (ended.startswith("SIG") and told == "a signal or os._exit")
    first = report["loaders"][0]
    assert first["offloaded"] is True
    assert first["num_batches"] >= 4
    assert report["version"] >= 1


@pytest.mark.few(5)
@pytest.mark.parametrize("end", ENDS)
def test_every_end_leaves_nothing_and_is_reported(tmp_path, end):
    result, ended = run(tmp_path, end, "large", quiet=False)
    if ended is None:  # with all processes killed at once nobody is left to write
        return
    check_report(result.report, ended)
    ours = [line for line in result.stderr.splitlines() if line.startswith("stoker")]
    assert 1 <= len(ours) <= 12, result.stderr  # the summary
    if end == "Ctrl-C":
        script = [line for line in result.stderr.splitlines() if line not in ours]
        # A worker that is just in a weakref's callback, of ours, torch's or the dataset's, cannot raise: Python tells of it.
        ignored = result.stderr.count("Exception ignored in")
        assert result.stderr.count("Traceback") - ignored == 1, result.stderr
        assert script[-1] == "KeyboardInterrupt"


@pytest.mark.few(4)  # the others: below, all at once
@pytest.mark.parametrize("situation", SITUATIONS)
@pytest.mark.parametrize("end", HARD_ENDS)
def test_no_situation_keeps_anything_alive(tmp_path, end, situation):
    result, ended = run(tmp_path, end, situation)
    check_report(result.report, ended)


@pytest.mark.few(1)
@pytest.mark.parametrize("end", ["kill -9", "SIGTERM", "Ctrl-C"])
def test_an_end_while_next_waits(tmp_path, end):
    run(tmp_path, end, "in-next", "stuck")


def test_all_situations_at_once(tmp_path):
    run(tmp_path, "kill -9", *SITUATIONS, "large")


def test_a_killed_template_ends_the_run_in_bounded_time_and_leaves_nothing(tmp_path):
    result = finished([*under_stoker(), sys.executable, "kill_template.py"], tmp_path)
    assert result.leftovers == {}
    assert result.stdout in ("all 16\n", "RuntimeError\n"), result.stderr


def test_an_interrupted_epoch_can_be_followed_by_another(tmp_path):
    """Scripts catch Ctrl-C to end training early, and then evaluate."""
    command = [*under_stoker(), sys.executable, "interrupted.py"]
    with started(command, tmp_path) as running:
        for _ in range(2):
            running.wait_for("in the loop")
            running.signal(signal.SIGINT, group=True)
        result = running.finish()
    assert (result.returncode, result.leftovers) == (0, {}), result.stderr
    assert result.stdout == "16 batches\n"
    assert "Traceback" not in result.stderr
