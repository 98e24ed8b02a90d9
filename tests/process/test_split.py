"""Scripts whose steps are known tell where the time went; stoker tells the same, with them left to torch too."""

import json
import sys

import pytest

from stoker.stalls.split import Seen, split_of
from tests.process.harness import finished, under_stoker

POINTS = 0.03
NAMES = {
    "data_s": "data",
    "copy_s": "copy",
    "communication_s": "ranks",
    "compute_s": "model",
    "other_s": "other",
}


def ran(folder, parts, num_steps, *flags, end=(), ranks=0):
    torchrun = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    report = f"--report-json={folder / 'report.json'}"
    script = ["split.py", parts, str(num_steps), *end]
    command = [*under_stoker(report, *flags), sys.executable, *(torchrun if ranks else []), *script]
    return finished(command, folder, environ={"OMP_NUM_THREADS": "1"})


def told(report):
    """Shares of the time of the steps, by stoker."""
    (loader,) = report["loaders"]
    split = split_of(loader["wait_s"], loader["busy_s"], Seen(**loader["seen"]))
    return {name: part_s / sum(split) for name, part_s in split._asdict().items()}


def known(result):
    """The same by the script."""
    took = json.loads(result.stdout.splitlines()[0])
    return {name: took[part] / sum(took.values()) for name, part in NAMES.items()}


def check(found, truth):
    for name, share in truth.items():
        own = found["own_s"] if name == "data_s" else 0.0  # the script cannot tell it from waiting
        assert found[name] + own == pytest.approx(share, abs=POINTS), (found, truth)
    assert found["unseen_s"] == 0.0


# Parts of a step are as long as two looks at least: of shorter ones a hundred steps are not enough to know them to 3 points.
SCRIPTS = {
    "data": "data=0.2,copy=0.05,model=0.05,other=0.05",
    "copies": "data=0.04,copy=0.15,model=0.04",
    "the model": "data=0.04,model=0.15,other=0.04",
    "the script": "model=0.04,other=0.15",
    "all of them": "data=0.05,copy=0.06,model=0.07,other=0.08",
}


@pytest.mark.parametrize("flags", [["--off"], []], ids=["plain", "stoker"])
@pytest.mark.parametrize("parts", SCRIPTS.values(), ids=SCRIPTS)
@pytest.mark.few(1)
def test_a_split_is_what_the_script_knows_it_to_be(tmp_path, parts, flags):
    result = ran(tmp_path, parts, 40, *flags)
    assert result.returncode == 0, result.stderr
    check(told(result.report), known(result))


@pytest.mark.parametrize("flags", [["--off"], ["--gradients=8bit"]], ids=["plain", "stoker"])
@pytest.mark.few(1)
def test_waiting_for_other_ranks_is_known(tmp_path, flags):
    result = ran(tmp_path, "ranks=0.12,other=0.05", 50, *flags, ranks=2)
    assert result.returncode == 0, result.stderr
    check(told(json.loads((tmp_path / "report.0.json").read_text())), known(result))


def test_of_a_killed_run_it_is_known_too(tmp_path):
    result = ran(tmp_path, "model=0.06,other=0.06", 60, end=["SIGKILL"])
    assert result.report["ended"] == "SIGKILL"
    check(told(result.report), known(result))


def test_who_wants_nobody_to_look_is_not_looked_at(tmp_path):
    result = ran(tmp_path, "data=0.01,model=0.05", 10, "--no-stalls")
    assert result.report["loaders"][0]["seen"] == Seen()._asdict()
    assert told(result.report)["unseen_s"] == pytest.approx(1 - known(result)["data_s"], abs=POINTS)


def test_what_comes_after_the_loop_is_not_the_loops(tmp_path):
    result = ran(tmp_path, "model=0.05,after=3", 40)
    split = told(result.report)
    assert split["compute_s"] > 0.8
    assert split["other_s"] < 0.1
