"""What the script can see of our processes: as of torch's, or nothing."""

import shutil
import subprocess
import sys

import pytest

from tests.process.away import ended
from tests.process.harness import finished, plain_and_ours, started, under_stoker

SCRIPT = [sys.executable, "waits_for_children.py"]
WAITED = "2016 True 7\nno child left\n" * 2


def may_unshare() -> bool:
    command = ["unshare", "--pid", "--fork", "--mount-proc", "true"]
    return shutil.which("unshare") is not None and not subprocess.run(command).returncode


@pytest.mark.parametrize("how", ["", "subreaper", "PID 1"])
def test_wait_tells_of_the_scripts_own_children_alone(tmp_path, how):
    if how == "PID 1" and not may_unshare():
        pytest.skip("no PID namespace may be made here")
    prefix = ["unshare", "--pid", "--fork", "--mount-proc"] if how == "PID 1" else []
    result = finished([*prefix, *under_stoker(), *SCRIPT, *how.split()], tmp_path)
    assert (result.stdout, result.returncode, result.leftovers) == (WAITED, 0, {}), result.stderr


def test_wait_does_not_tell_of_what_speaks_with_other_machines(tmp_path):
    flags = ["--cluster", "processes:1", "--report-json", str(tmp_path / "report.json")]
    with started([*under_stoker(*flags), *SCRIPT, "cluster"], tmp_path) as running:
        result = ended(running)
    assert (result.stdout, result.returncode) == (WAITED, 0), result.stderr
    assert result.report["workers"]["away_hours"] > 0


@pytest.mark.parametrize("flags", [[], ["--cluster", "processes:1"]], ids=["here", "cluster"])
def test_a_handler_of_sigchld_runs_for_the_scripts_own_child_alone(tmp_path, flags):
    """One that waits for any child, as scripts have it: it would hang, or fail."""
    script = [sys.executable, "hears_of_children.py"]
    plain = finished([*script, "0"], tmp_path / "plain")  # torch's workers are children
    with started([*under_stoker(*flags), *script, "0", "2", "0"], tmp_path / "ours") as running:
        ours = ended(running)
    assert (ours.stdout, ours.returncode) == (plain.stdout, 0) == ("[7]\n", 0), ours.stderr


def test_hooks_that_wait_for_a_thread_of_the_script_run_as_under_torch(tmp_path):
    plain, ours = plain_and_ours([sys.executable, "hooks.py"], tmp_path)
    assert ours.stdout == plain.stdout
    assert (plain.stderr, ours.stderr) == ("done\n", "done\n")


@pytest.mark.parametrize("whose", [[], ["lock"]], ids=["functions", "a held lock's"])
def test_without_workers_at_fork_functions_of_the_script_never_run(whose, tmp_path):
    """One prints, one waits for ever in a forked process; a lock's, which is held, would wait here."""
    plain, ours = plain_and_ours([sys.executable, "hooks_alone.py", *whose], tmp_path)
    assert (ours.stdout, ours.returncode) == (plain.stdout, 0), ours.stderr
    (loader,) = ours.report["loaders"]
    assert "at-fork functions" in loader["reasons"][0]


@pytest.mark.full  # it waits for 20 s
def test_at_fork_functions_of_a_package_that_wait_for_ever_leave_the_loader_to_torch(tmp_path):
    plain, ours = plain_and_ours([sys.executable, "hooks_alone.py", "package"], tmp_path)
    assert (ours.stdout, ours.returncode) == (plain.stdout, 0), ours.stderr
    (loader,) = ours.report["loaders"]
    assert "an at-fork function does not return" in loader["reasons"][0]


@pytest.mark.full  # it takes its time: whoever reaps must have had a second
def test_where_pid_1_reaps_nobody_zombies_do_not_grow_with_the_epochs(tmp_path):
    if not may_unshare():
        pytest.skip("no PID namespace may be made here")
    pid_1 = ["unshare", "--pid", "--fork", "--mount-proc", sys.executable, "zombies.py"]
    result = finished([*pid_1, *under_stoker(), sys.executable, "zombies.py"], tmp_path)
    assert result.stdout == "True\n", result.stderr
