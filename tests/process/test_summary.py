"""What a run says about itself at its end, of real scripts."""

import sys

import pytest

from stoker.reports.summary import MAX_LINES
from tests.process.harness import finished, under_stoker

SPINNING = (
    "OpenMP threads of the training process spin on the workers' cores: try OMP_NUM_THREADS=1"
)


@pytest.mark.parametrize(("num_threads", "is_told"), [("2", True), ("1", False)])
def test_threads_that_spin_on_the_workers_cores_are_named(tmp_path, num_threads, is_told):
    command = [*under_stoker(quiet=False), sys.executable, "spins.py"]
    ran = finished(command, tmp_path, environ={"OMP_NUM_THREADS": num_threads})
    assert ran.returncode == 0, ran.stderr
    lines = [line for line in ran.stderr.splitlines() if line.startswith("stoker: ")]
    assert len(lines) <= MAX_LINES
    assert (SPINNING in lines[-1]) == is_told, lines


def said(stderr):
    return [line.removeprefix("stoker: ") for line in stderr.splitlines() if "stoker: " in line]


FORKSERVER = (
    "import torch.utils.data as data; "
    "list(data.DataLoader(range(16), num_workers=2, multiprocessing_context='forkserver'))"
)


@pytest.mark.parametrize(
    ("words", "name", "place"),
    [(["train.py", "end"], "train.py", "train.py:"), (["-c", FORKSERVER], "-c", "<string>:1")],
    ids=["fork", "forkserver"],
)
def test_verbose_tells_that_it_is_on_and_what_becomes_of_each_loader(tmp_path, words, name, place):
    ran = finished([*under_stoker("-v", quiet=False), sys.executable, *words], tmp_path)
    assert ran.returncode == 0, ran.stderr
    starts, on, loader, *summary = said(ran.stderr)
    assert starts.startswith("stoker 0") and starts.endswith("; settings: verbose=True")
    assert on.startswith(f"on in {name} (pid ") and "torch 2" in on
    assert loader.startswith(place) and loader.endswith(
        ": 2 workers of stoker's, as of num_workers=2"
    )
    assert summary[0].startswith("16 batches in ")
    assert not any(" (pid " in line for line in summary)  # of the fork server, and its tracker


@pytest.mark.parametrize(("num_workers", "flags"), [("2", ["-v"]), ("2", ["--off"]), ("0", ["-v"])])
def test_a_loader_inside_a_worker_prints_nothing_and_makes_no_run_log(num_workers, flags, tmp_path):
    command = [*under_stoker(*flags, quiet=False), sys.executable, "nested.py", num_workers]
    ran = finished(command, tmp_path)
    assert ran.returncode == 0, ran.stderr
    lines = said(ran.stderr)
    assert len([line for line in lines if " batches in " in line]) == 1, ran.stderr
    assert len(set(lines)) == len(lines) and "daemonic" not in ran.stderr
    assert len(list((tmp_path / "state" / "stoker" / "runs").iterdir())) == 1


@pytest.mark.parametrize(
    ("program", "end"),
    [
        ("print('no torch')", "never imported torch.utils.data: nothing to do"),
        ("import torch.utils.data", "iterated no DataLoader: nothing to do"),
    ],
)
def test_verbose_tells_of_a_run_without_a_loader(tmp_path, program, end):
    command = [*under_stoker("-v", quiet=False), sys.executable, "-c", program]
    ran = finished(command, tmp_path)
    assert ran.returncode == 0, ran.stderr
    last = said(ran.stderr)[-1]
    assert last.startswith("-c (pid ") and last.endswith(end)


def test_without_verbose_a_run_without_a_loader_says_nothing(tmp_path):
    command = [*under_stoker(quiet=False), sys.executable, "-c", "import torch.utils.data"]
    assert finished(command, tmp_path).stderr == ""


@pytest.mark.parametrize(
    ("variable", "code", "line"),
    [
        ("STOKER_WORKRES", 2, "STOKER_WORKRES is no setting (did you mean STOKER_WORKERS?)"),
        ("STOKER_FLAVOUR", 0, "STOKER_FLAVOUR is no setting of stoker's; `stoker config` lists them"),
    ],
)  # fmt: skip
def test_a_variable_that_is_no_setting_is_named(tmp_path, variable, code, line):
    command = [*under_stoker(quiet=False), sys.executable, "-c", "pass"]
    ran = finished(command, tmp_path, environ={variable: "3"})
    assert (ran.returncode, said(ran.stderr)) == (code, [line])
