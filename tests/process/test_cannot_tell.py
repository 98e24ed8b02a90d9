"""A script cannot tell whether it runs under stoker: same output, same errors, same exit code."""

import json
import os
import sys
from pathlib import Path

import pytest

from tests.process.harness import SCRIPTS, finished, plain_and_ours, under_stoker

PROBE = (SCRIPTS / "probe.py").read_text()
WAYS = {
    "a file": ["probe.py", "a", "-b", "--quiet"],
    "a module": ["-m", "probe", "a", "--"],
    "a folder": ["probe_dir", "x"],
    "a string": ["-c", PROBE, "--workers", "7"],
    "standard input": ["-"],
    "with flags": ["-O", "-u", "-X", "utf8", "-W", "ignore", "probe.py", "3"],
    "isolated": ["-I", "probe.py", "4"],
    "unset environment": ["-E", "-P", "probe.py"],
}


@pytest.mark.few(3)
@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_what_a_script_sees_is_the_same(tmp_path, way):
    stdin = PROBE.encode() if way == ["-"] else b"some\ninput"
    plain, ours = plain_and_ours([sys.executable, *way], tmp_path, stdin=stdin)
    hide = {str(tmp_path / "plain"): "", str(tmp_path / "ours"): ""}
    assert _without(ours.stdout, hide) == _without(plain.stdout, hide)
    assert _without(ours.stderr, hide) == _without(plain.stderr, hide)
    assert ours.returncode == plain.returncode


def _without(text, words):
    for word, other in words.items():
        text = text.replace(word, other)
    return text


def test_a_py_file_runs_with_this_python(tmp_path):
    (tmp_path / "told.py").write_text("import sys; print(sys.executable, sys.argv)")
    plain = finished([sys.executable, "told.py", "a"], tmp_path / "plain", cwd=tmp_path)
    ours = finished([*under_stoker()[:-1], "told.py", "a"], tmp_path / "ours", cwd=tmp_path)
    assert (ours.stdout, ours.stderr, ours.returncode) == (plain.stdout, plain.stderr, 0)


def test_a_command_that_is_no_python_runs(tmp_path):
    ours = finished([*under_stoker(), "sh", "-c", "echo $0 $1; exit 9", "a", "--quiet"], tmp_path)
    assert (ours.stdout, ours.stderr, ours.returncode) == ("a --quiet\n", "", 9)


@pytest.mark.few(2)
@pytest.mark.parametrize("code", [0, 1, 2, 69, 70, 255])
def test_exit_codes_pass_through(tmp_path, code):
    program = f"import sys; sys.exit({code})"
    assert finished([*under_stoker(), sys.executable, "-c", program], tmp_path).returncode == code


def test_output_of_dataset_code_is_as_from_torchs_workers(tmp_path):
    plain, ours = plain_and_ours([sys.executable, "talkative.py"], tmp_path)
    assert ours.stdout == plain.stdout
    assert ours.stderr == plain.stderr
    assert ours.returncode == plain.returncode


def test_unbuffered_output_of_dataset_code_is_as_from_torchs_workers(tmp_path):
    plain, ours = plain_and_ours([sys.executable, "-u", "talkative.py"], tmp_path)
    assert sorted(ours.stdout.splitlines()) == sorted(plain.stdout.splitlines())
    assert sorted(ours.stderr.splitlines()) == sorted(plain.stderr.splitlines())


def test_a_breakpoint_in_dataset_code_ends_as_under_torch(tmp_path):
    """Workers have no terminal: the debugger shows its prompt, reads the end and quits."""
    plain, ours = plain_and_ours([sys.executable, "debugged.py"], tmp_path, stdin=b"c\n" * 9)
    # torch's worker may be terminated before it has written what follows the prompt: on 3.14 a question, again and again.
    assert ours.stdout.partition("(Pdb)")[0] == plain.stdout.partition("(Pdb)")[0]
    assert "(Pdb)" in ours.stdout
    assert ours.returncode == plain.returncode
    if "Quit anyway?" not in plain.stdout:
        assert "bdb.BdbQuit" in plain.stderr
        assert "bdb.BdbQuit" in ours.stderr


def test_an_uncaught_error_of_a_sample_ends_as_under_torch(tmp_path):
    plain, ours = plain_and_ours([sys.executable, "failing.py"], tmp_path)
    assert (ours.returncode, ours.stdout) == (1, plain.stdout)
    assert "ValueError: bad sample" in plain.stderr
    assert "ValueError: bad sample" in ours.stderr
    assert 'failing.py", line' in ours.stderr
    assert ours.report["ended"] != "exit"


@pytest.mark.few(1)
@pytest.mark.parametrize("closed", [0, 1, 2])
def test_closed_standard_streams_are_no_trouble(tmp_path, closed):
    """The first pipes and regions that we open then get the numbers 0, 1 and 2."""
    plain, ours = plain_and_ours(
        [sys.executable, "digests.py", str(tmp_path / "digests")], tmp_path,
        preexec=lambda: os.close(closed),
    )  # fmt: skip
    assert ours.returncode == plain.returncode == 0
    assert ours.stderr == plain.stderr
    assert ours.stdout == plain.stdout
    first, second = (tmp_path / "digests").read_text().split("---\n", 1)
    assert second == first + "---\n"


def test_hash_batches_gives_the_digests_of_what_arrived(tmp_path):
    digests = tmp_path / "digests"
    reports = {}
    for name, flags in {"on": [], "off": ["--off"]}.items():
        report = tmp_path / name / "report.json"
        flags += ["--hash-batches", f"--report-json={report}"]
        command = [*under_stoker(*flags), sys.executable, "digests.py", str(digests)]
        assert finished(command, tmp_path / name).returncode == 0
        reports[name] = json.loads(report.read_text())["loaders"]
    by_hand = digests.read_text().split("---\n")[0].split()
    assert [d for loader in reports["on"] for d in loader["batches_sha256"]] == by_hand
    assert [d for loader in reports["off"] for d in loader["batches_sha256"]] == by_hand
    assert all(loader["offloaded"] for loader in reports["on"])
    assert not any(loader["offloaded"] for loader in reports["off"])
    assert all(loader["reasons"] for loader in reports["off"])


def with_report(*script, folder):
    report = f"--report-json={folder / 'report.json'}"
    return finished([*under_stoker(report), sys.executable, *script], folder)


def test_the_report_has_the_published_fields(tmp_path):
    ours = with_report("train.py", "end", folder=tmp_path)
    report = ours.report
    assert report.keys() >= {
        "version", "ended", "rank", "ranks_without_stoker", "wall_s", "loaders", "workers", "gradients", "trainer",
    }  # fmt: skip
    (loader,) = report["loaders"]
    assert loader.keys() >= {
        "place", "offloaded", "reasons", "chains", "num_batches", "num_samples", "wait_s",
        "wire_nbytes", "raw_nbytes", "batches_sha256",
    }  # fmt: skip
    assert (loader["num_batches"], loader["num_samples"]) == (16, 64)
    assert (loader["chains"], loader["reasons"], loader["batches_sha256"]) == (2, [], [])
    assert loader["raw_nbytes"] == 64 * (5 * 4 + 8)
    assert loader["place"].startswith("train.py:")
    assert report["workers"]["started"] >= 2
    assert report["workers"].keys() >= {"started", "lost", "replayed", "hedged", "slots"}
    assert report["trainer"]["cpu_s"] > 0
    assert report["trainer"]["peak_rss_nbytes"] > 1 << 24
    assert Path(ours.folder, "report.json").exists()


def test_no_batch_is_missed_where_only_some_are_looked_at(tmp_path):
    """Loops that end, break, and are still under way when the script ends."""
    ours = with_report("fast_batches.py", folder=tmp_path)
    loaders = ours.report["loaders"]
    assert not any(loader["offloaded"] for loader in loaders)
    num_batches = sum(loader["num_batches"] for loader in loaders)
    assert num_batches == int(ours.stdout) == 3 * 1000 + 333 + 77
    assert sum(loader["num_samples"] for loader in loaders) == 4 * num_batches
    assert sum(loader["wait_s"] + loader["busy_s"] for loader in loaders) < ours.report["wall_s"]
