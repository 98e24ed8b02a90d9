"""`stoker verify` on whole scripts: equal ones, impure ones, those that look for stoker, and ends."""

import shutil
import signal
import sys

import pytest

from tests.process.harness import SCRIPTS, finished, started

FOLDER = SCRIPTS / "verify"

EQUAL = {  # script -> of each line of the table: batches compared, and of the offload the start
    "augmented": [(24, "yes, 2 workers")],
    "train_and_val": [(num, "yes, ") for num in (24, 9, 4, 3)],
    "persistent": [(24, "yes, 2 workers")],
    "ragged": [(16, "yes, 2 workers")],
    "no_workers": [(10, "no: num_workers=0")],
    "iterable": [(16, "yes, 2 workers")],
    "hashed": [(20, "yes, 2 workers")],
    "broken_off": [(15, "yes, 2 workers")],
}
IMPURE = {
    "clock": "time.time() at clock.py:9 (in stamp)",
    "entropy": "os.urandom() at entropy.py:9 (in salted)",
    "race": "threading.Thread() at race.py:21 (in Raced.__getitem__)",
    "quickest": "concurrent.futures.as_completed() at quickest.py:21 (in Parts.__getitem__)",
}
SLY = {
    "batch": "different: batch 3 (epoch 1) of sly.py:27 is not the same under stoker",
    "fewer": "different: sly.py:27 gives 4 batches plain, 3 under stoker",
    "loader": "different: sly.py:33 is iterated only plain",
    "generator": "different: the training process's torch generator after batch 3 (epoch 1) of "
                 "sly.py:27 is not the same under stoker",
    "exit": "different: the command ends with exit code 0 plain and 1 under stoker",
}  # fmt: skip


def verifying(*flags):
    return [sys.executable, "-m", "stoker", "verify", *flags, "--", sys.executable]


def verify(folder, *command, flags=(), cwd=FOLDER, **kwargs):
    result = finished([*verifying(*flags), *command], folder, cwd=cwd, **kwargs)
    assert result.leftovers == {}
    assert ours_among(result.left_files()) == []
    return result


def ours_among(files):
    """Without what plain torch leaves behind: multiprocessing's folders, torchrun's logs."""
    return [file for file in files if "stoker" in file]


def rows(result):
    """Batches compared and the rest of the line, of each line of the table."""
    lines = [line for line in result.stdout.splitlines() if line.startswith("  ")][1:]
    return [(int(line.split()[1]), line.split(maxsplit=2)[2]) for line in lines]


@pytest.mark.few(2)
@pytest.mark.parametrize("script", EQUAL)
def test_a_script_that_is_carried_faithfully_is_equal(tmp_path, script):
    result = verify(tmp_path, f"{script}.py")
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.splitlines()[-1].startswith("equal: ")
    found = rows(result)
    assert [num for num, _ in found] == [num for num, _ in EQUAL[script]]
    for (_, line), (_, offload) in zip(found, EQUAL[script], strict=True):
        assert line.startswith(offload) and line.endswith("equal")


@pytest.mark.full
def test_each_rank_and_each_child_is_compared_with_its_own(tmp_path):
    command = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "ranks.py"]
    result = verify(tmp_path, *command)
    assert result.returncode == 0, result.stdout + result.stderr
    ranks = [line for line in result.stdout.splitlines() if "(rank " in line]
    assert len([line for line in ranks if "ranks.py:16 (rank 0)" in line]) == 1
    assert len([line for line in ranks if "ranks.py:16 (rank 1)" in line]) == 1
    assert len([line for line in ranks if "broken_off.py:10 (rank 0)" in line]) == 1
    assert "equal: 43 batches" in result.stdout


@pytest.mark.few(1)
@pytest.mark.parametrize("script", IMPURE)
def test_an_impure_script_is_told_and_the_impurity_is_named(tmp_path, script):
    result = verify(tmp_path, f"{script}.py")
    # Threads that agree twice by luck would be 1; the name stands there all the same.
    assert result.returncode == 3, result.stdout + result.stderr
    assert "undecided: the plain script differs from itself" in result.stdout
    assert f"likely reason: {IMPURE[script]}" in result.stdout


@pytest.mark.few(1)
@pytest.mark.parametrize("how", SLY)
def test_what_differs_only_under_stoker_is_charged_to_stoker(tmp_path, how):
    result = verify(tmp_path, "sly.py", how)
    assert result.returncode == 1, result.stdout + result.stderr
    assert f"{SLY[how]}; two plain runs are equal\n" in result.stdout
    if how in ("batch", "fewer", "generator"):
        assert "likely reason: sys.modules at sly.py:15 (in is_offloaded)" in result.stdout
    if how == "exit":
        assert "RuntimeError: it is stoker" in result.stdout


@pytest.mark.full
def test_chains_compare_with_torch_at_that_number_of_workers(tmp_path):
    result = verify(tmp_path, "augmented.py", flags=["--chains", "3"])
    assert result.returncode == 0, result.stdout + result.stderr
    assert rows(result) == [(24, "yes, 3 workers  equal")]


@pytest.mark.few(1)
@pytest.mark.parametrize("cache", ["audit", "auto"])
def test_what_is_remembered_is_equal(tmp_path, cache):
    result = verify(tmp_path, "remembers.py", flags=["--cache", cache, "--batches", "100"])
    assert result.returncode == 0, result.stdout + result.stderr
    assert rows(result) == [(72, "yes, 2 workers  equal")]


def test_a_run_ends_when_each_loader_has_given_enough(tmp_path):
    result = verify(tmp_path, "train_and_val.py", flags=["--batches", "5"])
    assert result.returncode == 0, result.stdout + result.stderr
    assert rows(result) == [(5, "yes, 2 workers  equal")]
    result = verify(tmp_path, "train_and_val.py", flags=["--batches=10"])
    assert [num for num, _ in rows(result)] == [24, 9, 1, 1]  # the zipped ones are the same loaders


@pytest.mark.full
def test_a_loader_that_was_only_peeked_at_holds_nothing_up(tmp_path):
    result = verify(tmp_path, "peeks.py", flags=["--batches", "3"])
    assert result.returncode == 0, result.stdout + result.stderr
    assert [num for num, _ in rows(result)] == [1, 12]


@pytest.mark.few(1)
@pytest.mark.parametrize(("num_batches", "so_far"), [("0", "before any batch"), ("2", "so far")])
def test_a_command_that_fails_by_itself_is_4_and_its_words_are_shown(tmp_path, num_batches, so_far):
    result = verify(tmp_path, "failing.py", num_batches)
    assert result.returncode == 4, result.stdout + result.stderr
    assert "the command itself ends with exit code 1" in result.stdout
    assert so_far in result.stdout
    assert "ValueError: out of cheese" in result.stdout


def test_a_script_without_a_loader_is_5(tmp_path):
    result = verify(tmp_path, "no_loader.py")
    assert result.returncode == 5
    assert result.stdout.startswith("nothing to compare: no loader was iterated")


@pytest.mark.full
def test_the_scripts_own_output_stays_out_of_the_verdict(tmp_path):
    program = "print('its own words'); import runpy; runpy.run_path('augmented.py')"
    result = verify(tmp_path, "-c", program, flags=["--batches", "2"])
    assert result.returncode == 0, result.stdout + result.stderr
    assert "its own words" not in result.stdout + result.stderr.replace(program, "")


@pytest.mark.few(4)
@pytest.mark.parametrize(
    ("command", "code", "said"),
    [
        (["--bathces", "3", "--", "x"], 2, "unknown flag '--bathces' (did you mean --batches?) before the command; stoker "
                                           "verify --help lists the flags"),
        (["--batches", "0", "--", "x"], 2, "--batches: got '0'; give a number >= 1"),
        (["--limit-s", "soon", "--", "x"], 2, "--limit-s: got 'soon'; give seconds > 0"),
        (["--chains", "0", "--", "x"], 2, "--chains: chains: got '0'"),
        (["--", "stoker", "run", "x.py"], 2, "verify runs the script itself; leave 'stoker run' out"),
        (["--batches", "3"], 2, "no command given; write: stoker verify [flags]"),
        (["no_such.py"], 2, "no such script: 'no_such.py'"),
        (["--", "no-such-program"], 127, "command not found: no-such-program"),
        (["--", "./clock.py", "x"], 126, "cannot run ./clock.py"),
    ],
)  # fmt: skip
def test_what_cannot_be_run_is_told_as_by_stoker_run(tmp_path, command, code, said):
    if code == 126:
        command = ["--", str(tmp_path)]  # a folder
        said = f"cannot run {tmp_path}"
    command = [sys.executable, "-m", "stoker", "verify", *command]
    result = finished(command, tmp_path, cwd=FOLDER)
    assert (result.returncode, result.left_files()) == (code, [])
    assert said in result.stderr


def test_help_lists_the_flags_and_the_exit_codes(tmp_path):
    result = finished([sys.executable, "-m", "stoker", "verify", "--help"], tmp_path)
    assert result.returncode == 0
    for word in ("--batches N", "--limit-s S", "--chains", "--sandbox", "default: 50", "undecided"):
        assert word in result.stdout


@pytest.mark.few(1)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_both_the_command_and_what_it_started(tmp_path, number):
    with started([*verifying(), "waits.py", "2"], tmp_path, cwd=FOLDER) as running:
        running.wait_for("in the loop")
        running.signal(number, group=True)
        result = running.finish()
    assert (result.returncode, result.leftovers) == (128 + number, {}), result.stderr
    assert ours_among(result.left_files()) == []
    assert "Traceback" not in result.stderr


def test_the_command_ends_when_verify_is_killed(tmp_path):
    with started([*verifying(), "waits.py", "2"], tmp_path, cwd=FOLDER) as running:
        running.wait_for("in the loop")
        running.signal(signal.SIGKILL)
        running.finish()
        assert running.leftovers(10) == {}  # torch's workers look for their parent every 5 s


@pytest.mark.full
def test_the_limit_ends_a_run_that_waits_and_what_came_is_compared(tmp_path):
    result = verify(tmp_path, "waits.py", "3", flags=["--limit-s", "8"], environ={"TELL_FD": ""})
    assert result.returncode == 0, result.stdout + result.stderr
    assert [num for num, _ in rows(result)] == [3]
    assert "the limit of 8 s (--limit-s) ended a run" in result.stdout


@pytest.mark.full
def test_the_limit_ends_a_run_in_next(tmp_path):
    result = verify(tmp_path, "peeks.py", flags=["--limit-s", "0.01", "--batches", "1000"])
    assert result.returncode == 0, result.stdout + result.stderr
    assert [num for num, _ in rows(result)] == [1]


@pytest.mark.full
def test_a_script_that_swallows_the_end_is_ended(tmp_path):
    result = verify(tmp_path, "stubborn.py", flags=["--batches", "15"])
    assert result.returncode == 0, result.stdout + result.stderr
    assert rows(result) == [(15, "yes, 2 workers  equal")]
    assert "limit" not in result.stdout


@pytest.fixture
def project(tmp_path):
    """A folder with what writes.py reads, and one beside it."""
    folder = tmp_path / "work" / "project"
    for name in ("runs", "given"):
        (folder / name).mkdir(parents=True)
    (folder / "given" / "first.txt").write_text("3")
    (folder / "log.txt").write_text("")
    shutil.copy(FOLDER / "writes.py", folder)
    return folder


def contents(folder):
    return {str(f.relative_to(folder)): f.read_text() for f in folder.rglob("*") if f.is_file()}


@pytest.mark.full
def test_runs_that_read_each_others_files_are_undecided(tmp_path, project):
    result = verify(tmp_path, "writes.py", cwd=project)
    assert result.returncode == 3, result.stdout + result.stderr
    assert "try --sandbox" in result.stdout


def test_a_sandbox_keeps_runs_and_the_folder_apart(tmp_path, project):
    before = contents(project)
    result = verify(tmp_path, "writes.py", cwd=project, flags=["--sandbox"])
    assert result.returncode == 0, result.stdout + result.stderr
    assert contents(project) == before


@pytest.mark.full
def test_in_a_sandbox_a_reason_is_named_by_the_real_file(tmp_path, project):
    shutil.copy(FOLDER / "clock.py", project)
    (project / "train.py").write_text("import clock\n")
    result = verify(tmp_path, "train.py", cwd=project, flags=["--sandbox", "--batches", "1"])
    assert result.returncode == 3, result.stdout + result.stderr
    assert "likely reason: time.time() at clock.py:9 (in stamp)" in result.stdout


@pytest.mark.full
def test_a_file_that_is_written_where_it_stands_is_named(tmp_path, project):
    result = verify(tmp_path, "writes.py", "--in-place", cwd=project, flags=["--sandbox"])
    assert result.returncode == 0, result.stdout + result.stderr
    assert "stoker: written in place, not in the sandbox: log.txt" in result.stderr
