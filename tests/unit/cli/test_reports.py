"""--report-json removes reports of ours, and nothing else."""

import json
import subprocess
import sys

import pytest

from stoker.cli.checks import reports
from stoker.errors import ConfigError
from stoker.reports import file as report_file
from stoker.reports.metrics import RunRecord, as_json
from tests.process.harness import ENVIRON


def report(rank=None):
    return json.dumps(as_json(RunRecord(rank=rank), [], "exit"))


def run(file, **environ):
    command = [sys.executable, "-m", "stoker", "run", "--report-json", file, "--", "true"]
    environ = {name: value for name, value in ENVIRON.items() if name != "RANK"} | environ
    return subprocess.run(command, env=environ, capture_output=True, text=True, check=False)


NOT_OURS = {
    "results.2024.json": '{"accuracy": 0.9}',
    "results.2025.json": "",
    "results.2026.json": "[1, 2]",
    "results.2027.json": '{"version": 1, "ended": "exit"',
    "results.7.json": report(rank=3),  # somebody has renamed it
    "results.8.json": report(),
    "results.09.json.part": "",
    "results.best.json": report(rank=9),
    "results.json.4711": report(),
    "results.json.part": "mine",
}


def test_only_reports_of_this_name_are_removed(tmp_path):
    for name, text in NOT_OURS.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "elsewhere.json").write_text(report(rank=5))
    (tmp_path / "results.5.json").symlink_to(tmp_path / "elsewhere.json")
    ours = {"results.json": report(), "results.0.json": report(0), "results.12.json": report(12)}
    for name, text in ours.items():
        (tmp_path / name).write_text(text)
    result = run(tmp_path / "results.json")
    assert (result.returncode, result.stderr) == (0, "")
    left = {file.name for file in tmp_path.iterdir()}
    assert left == {*NOT_OURS, "results.5.json", "elsewhere.json"}
    assert all((tmp_path / name).read_text() == text for name, text in NOT_OURS.items())


def test_a_rank_removes_its_own_report_alone(tmp_path):
    names = ["results.json", "results.1.json", "results.2.json"]
    for name, rank in zip(names, (None, 1, 2), strict=True):
        (tmp_path / name).write_text(report(rank))
    assert run(tmp_path / "results.json", RANK="1").returncode == 0
    assert {file.name for file in tmp_path.iterdir()} == {"results.json", "results.2.json"}


def test_an_empty_file_of_the_name_is_replaced(tmp_path):
    (tmp_path / "results.json").touch()
    assert run(tmp_path / "results.json").returncode == 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("what", ["text", "json", "link", "dangling link", "pipe"])
def test_what_is_no_report_is_refused(tmp_path, what):
    file, target = tmp_path / "results.json", tmp_path / "target"
    if what == "pipe":
        subprocess.run(["mkfifo", file], check=True)
    elif "link" in what:
        file.symlink_to(target)
    else:
        file.write_text({"text": "epoch 1", "json": '{"version": 1, "loss": 2}'}[what])
    if what == "link":
        target.write_text(report())
    before = file.lstat()
    result = run(file)
    assert result.returncode == 2
    assert len(result.stderr.splitlines()) == 1 and str(file) in result.stderr
    assert file.lstat().st_ino == before.st_ino


# -- in the process that writes it -----------------------------------------------------------------


def test_what_the_script_has_put_there_meanwhile_stays(tmp_path, capsys):
    file = report_file.own_file(tmp_path / "results.json", None)
    file.write_text("the script's")
    report_file.write({"version": 1}, file)
    assert file.read_text() == "the script's"
    (other,) = (found for found in tmp_path.iterdir() if found != file)
    assert json.loads(other.read_text()) == {"version": 1}
    assert str(other) in capsys.readouterr().err


def test_a_link_is_not_followed_and_a_part_of_the_users_stays(tmp_path):
    file = report_file.own_file(tmp_path / "results.json", None)
    file.unlink()
    file.symlink_to(tmp_path / "target")
    (tmp_path / "results.json.part").symlink_to(tmp_path / "target")
    report_file.write({}, file)
    assert not (tmp_path / "target").exists()
    assert file.is_symlink()


def test_a_write_that_fails_leaves_no_part(tmp_path):
    code = (
        "import resource, signal, sys\nfrom pathlib import Path\n"
        "from stoker.reports.file import own_file, write\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_DFL)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))\n"
        "write({'version': 1}, own_file(Path(sys.argv[1]), None))\n"
    )
    command = [sys.executable, "-c", code, tmp_path / "results.json"]
    result = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)
    assert result.returncode == 0
    assert "the report was not written" in result.stderr
    assert [file.name for file in tmp_path.iterdir()] == ["results.json"]


def test_a_folder_that_may_not_be_listed_is_told(tmp_path, monkeypatch):
    def refused(folder):
        raise PermissionError(13, "Permission denied", folder)

    monkeypatch.setattr(reports.os, "listdir", refused)
    with pytest.raises(ConfigError, match=f"--report-json: {tmp_path}: Permission denied"):
        reports.make_room(str(tmp_path / "results.json"))
