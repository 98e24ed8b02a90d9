"""Bad inputs end as torch ends them, or in a message: what happened, with which values, what to do."""

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from tests.process.harness import finished, plain_and_ours, under_stoker

STOKER_RUN = [sys.executable, "-m", "stoker", "run"]

WRONG = {
    "unknown flag": (["--wokers", "2", "--", "python", "x.py"], ["--wokers", "--help"]),
    "unknown flag with a value": (["--wokers=2", "--", "python"], ["--wokers"]),
    "no workers": (["--workers", "0", "--", "python"], ["workers", "'0'", ">= 1"]),
    "negative workers": (["--workers=-1", "--", "python"], ["workers", "-1", ">= 1"]),
    "workers in words": (["--workers", "two", "--", "python"], ["workers", "two"]),
    "no chains": (["--chains", "0", "--", "python"], ["chains", "'0'", "script, auto"]),
    "memory in words": (["--memory", "lots", "--", "python"], ["memory", "lots", "4G"]),
    "no value": (["--workers", "--", "python"], ["--workers"]),
    "no command": (["--quiet"], ["command"]),
    "no command after --": (["--quiet", "--"], ["command"]),
    "nothing": ([], ["command"]),
    "no such script": (["missing.py"], ["missing.py"]),
    "no folder for the report": (
        ["--report-json", "/nowhere/at/all/r.json", "--", sys.executable, "-c", ""],
        ["/nowhere/at/all"],
    ),
}


@pytest.mark.parametrize(("words", "told"), WRONG.values(), ids=WRONG)
def test_wrong_flags_end_with_2_and_say_what_would_do(tmp_path, words, told):
    result = finished([*STOKER_RUN, *words], tmp_path)
    if "report" in str(words):
        assert result.returncode in (0, 2)  # the run is worth more than its report
    else:
        assert result.returncode == 2
        assert len(result.stderr.splitlines()) <= 3, result.stderr
        assert result.stderr.startswith("stoker: ")
        assert all(word in result.stderr for word in told), result.stderr
    assert result.stdout == ""
    assert "Traceback" not in result.stderr


def test_wrong_variables_of_the_environment_are_named(tmp_path):
    result = finished([*STOKER_RUN, "--", "true"], tmp_path, environ={"STOKER_WORKERS": "0"})
    assert result.returncode == 2
    assert "STOKER_WORKERS" in result.stderr


def test_a_missing_script_after_the_dashes_is_pythons_to_tell(tmp_path):
    plain, ours = plain_and_ours([sys.executable, "missing.py"], tmp_path)
    assert (ours.returncode, ours.stderr) == (plain.returncode, plain.stderr)


@pytest.mark.parametrize(("command", "code"), [("no-such-command", 127), ("/etc/passwd", 126)])
def test_commands_that_cannot_run_end_as_in_a_shell(tmp_path, command, code):
    result = finished([*STOKER_RUN, "--", command], tmp_path)
    assert result.returncode == code
    assert command in result.stderr


@pytest.fixture(scope="module")
def other_python(tmp_path_factory):
    """An interpreter without stoker."""
    folder = tmp_path_factory.mktemp("venv")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    return folder / "bin" / "python"


@pytest.mark.parametrize("way", ["interpreter", "shebang"])
def test_an_interpreter_without_stoker_is_told_with_both_names(tmp_path, other_python, way):
    command = [str(other_python), "-c", "print('never')"]
    if way == "shebang":
        script = tmp_path / "train"
        script.write_text(f"#!{other_python}\nprint('never')\n")
        script.chmod(0o755)
        command = [str(script)]
    result = finished([*STOKER_RUN, "--", *command], tmp_path)
    assert result.returncode == 2
    assert result.stdout == ""
    assert str(other_python) in result.stderr
    assert sys.executable in result.stderr
    assert "install" in result.stderr


@pytest.mark.few(1)
@pytest.mark.parametrize("memory", ["1M", "30M"])
def test_a_full_memory_budget_is_no_error(tmp_path, memory):
    """10 MB are kept; torch's own side is the measure."""
    command = [sys.executable, "hungry.py", "kept"]
    plain, ours = plain_and_ours(command, tmp_path, f"--memory={memory}")
    assert (ours.returncode, ours.stdout) == (plain.returncode, plain.stdout) == (0, plain.stdout)
    assert bool(ours.report["loaders"][0]["num_copied"]) is (memory == "1M")


def test_a_refused_memfd_leaves_the_run_as_torch_runs_it(tmp_path):
    plain, ours = plain_and_ours([sys.executable, "hungry.py", "kept", "no-memfd"], tmp_path)
    assert (ours.returncode, ours.stdout) == (plain.returncode, plain.stdout) == (0, plain.stdout)


def limit_fds():
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))


@pytest.mark.few(1)
@pytest.mark.parametrize("what", ["tensors", "batches"])
def test_few_file_descriptors_are_enough(tmp_path, what):
    """10,000 tensors a batch, or 500 kept batches: torch itself gives up on both."""
    report = tmp_path / "report.json"
    command = [*under_stoker(f"--report-json={report}"), sys.executable, "hungry.py", what]
    result = finished(command, tmp_path, preexec=limit_fds)
    assert result.returncode == 0, result.stderr
    assert result.stdout == "as they were\n"
    assert result.leftovers == {}
    assert result.report["loaders"][0]["offloaded"]


def test_too_few_file_descriptors_end_with_a_message(tmp_path):
    """Where even the workers' own channels do not fit, torch fails as well."""
    limit = (24, 24)
    result = finished(
        [*under_stoker(), sys.executable, "hungry.py", "workers"], tmp_path,
        preexec=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, limit),
    )  # fmt: skip
    assert result.leftovers == {}
    assert result.returncode in (0, 1)
    if result.returncode == 1:
        last = result.stderr.splitlines()[-1]
        assert "Too many open files" in last or "open files" in last, result.stderr


def test_a_small_dev_shm_is_enough(tmp_path):
    mounted = 'mount -t tmpfs -o size=64M none /dev/shm && exec "$@"'
    wrapped = ["unshare", "-m", "sh", "-c", mounted, "sh"]
    try:
        allowed = subprocess.run([*wrapped, "true"], capture_output=True, check=False)
    except FileNotFoundError:
        pytest.skip("there is no unshare command")
    if allowed.returncode != 0:
        pytest.skip(f"no mounts are allowed here: {allowed.stderr.decode().strip()}")
    command = [*wrapped, *under_stoker(), sys.executable, "hungry.py", "wide"]
    result = finished(command, tmp_path)
    assert result.returncode == 0, result.stderr
    assert result.stdout == "as they were\n"


@pytest.mark.full
def test_a_sample_of_3_gb_arrives(tmp_path):
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if free < 12 << 30:
        pytest.skip(f"needs 12 GB of free memory, there are {free >> 30}")
    result = finished([*under_stoker(), sys.executable, "hungry.py", "3 GB"], tmp_path)
    assert result.returncode == 0, result.stderr
    assert result.stdout == "as they were\n"
    assert result.leftovers == {}


def test_a_worker_that_runs_out_of_memory_is_told_as_by_torch(tmp_path):
    """The kernel's killer is played by the sample itself: three times, then it is told."""
    result = finished([*under_stoker(), sys.executable, "hungry.py", "killed"], tmp_path)
    assert result.returncode == 1
    assert "DataLoader worker (pid" in result.stderr
    assert "is killed by signal: Killed" in result.stderr
    assert "4, 5" in result.stderr, "the samples are named"
    assert result.leftovers == {}


def test_a_report_that_cannot_be_written_is_told_and_no_failure(tmp_path):
    folder = tmp_path / "folder.json"
    folder.mkdir()
    (folder / "x").touch()
    command = [*under_stoker(f"--report-json={folder}"), sys.executable, "train.py", "end"]
    result = finished(command, tmp_path / "run")
    assert "Traceback" not in result.stderr
    assert result.returncode in (0, 2)
    assert Path(folder, "x").exists()
    beside = [file for file in tmp_path.iterdir() if file.name.startswith("folder.json.")]
    assert str(folder) in result.stderr or beside
