"""`stoker doctor` on scripts that are bound by something known, and on those that cannot be examined."""

import json
import signal
import sys

import pytest

from stoker.doctor.advice import bound_of
from stoker.doctor.facts import Facts
from tests.process.harness import finished, started

TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
MANY = "100000"  # steps: the script is ended long before


def examining(*flags):
    return [sys.executable, "-m", "stoker", "doctor", *flags, "--", sys.executable]


@pytest.fixture
def doctor(tmp_path):
    def run(*command, flags=()):
        environ = {"OMP_NUM_THREADS": "1"}
        result = finished([*examining(*flags), *command], tmp_path, environ=environ)
        assert result.leftovers == {}
        assert [file for file in result.left_files() if "stoker" in file] == []
        return result

    return run


def facts_of(result):
    assert result.returncode == 0, result.stdout + result.stderr
    return Facts.from_json(json.loads(result.stdout.splitlines()[-1]))


BOUNDS = {
    "data": ["split.py", "data=0.05,model=0.01", MANY],
    "copies to the device": ["split.py", "data=0.002,copy=0.04,model=0.01", MANY],
    "the model": ["split.py", "data=0.002,model=0.05", MANY],
    "Python in the training loop": ["split.py", "data=0.002,other=0.05,model=0.005", MANY],
    "communication with other ranks": [*TORCHRUN, "split.py", "data=0.002,ranks=0.06", MANY],
}


@pytest.mark.parametrize(("bound", "command"), BOUNDS.items(), ids=BOUNDS)
@pytest.mark.few(1)
def test_the_verdict_is_what_the_script_is_bound_by(doctor, bound, command):
    facts = facts_of(doctor(*command, flags=["--json", "--limit-s=20"]))
    assert bound_of(facts.plain.split)[0] == bound
    assert facts.free.rate > (3 if bound == "data" else 0.8) * facts.plain.rate
    assert facts.why == ""


def test_a_slow_script_is_shown_the_way_in_one_command(doctor):
    result = doctor("examined.py", flags=["--price-trainer=2", "--price-worker=0.1"])
    assert result.returncode == 0, result.stdout + result.stderr
    lines = result.stdout.splitlines()
    assert lines[0].startswith("examined.py:")
    assert lines[1].startswith("the limit is data: ")
    assert "  decode (examined.py:" in result.stdout
    assert "Pixels.__getitem__ (examined.py:" in result.stdout
    assert "num_workers=0: samples are made in the training loop itself" in result.stdout
    assert " of other machines" in result.stdout
    assert "begin with: stoker run " in lines[-1]
    assert max(map(len, lines[:-1])) <= 90  # but for the command, which may be long


@pytest.mark.full
def test_what_is_remembered_is_told_with_what_it_brings(doctor):
    facts = facts_of(doctor("examined.py", "pure", flags=["--json"]))
    assert facts.kept.serves and "Pixels" in facts.kept.place
    assert facts.kept.rate > 5 * max(trial.rate for trial in facts.trials)
    names = [name for name, _ in facts.costs.functions]
    assert names[0] == "zlib.compress"  # a function of the script is told by its parts


def test_a_script_that_ends_before_is_told_as_far_as_it_came(doctor):
    facts = facts_of(doctor("split.py", "data=0.02", "40", flags=["--json", "--steps=1000"]))
    assert facts.why == "the script ended after 39 steps"
    assert (facts.free, facts.costs, facts.trials) == (None, None, [])


LOADERS = {
    "workers": (["workers"], 8),
    "persistent": (["persistent", "pure"], 8),
    "a batch sampler": (["sampler", "workers"], 8),
    "no batches": (["unbatched", "workers"], 1),
    "an iterable": (["iterable", "workers"], 8),
    "short epochs": (["short", "workers"], 8),
    "a loop that takes batches apart": (["takes", "workers"], 8),
    "another loader before": (["peeks", "workers"], 8),
}


@pytest.mark.parametrize(("how", "batch_size"), LOADERS.values(), ids=LOADERS)
@pytest.mark.few(1)
def test_whatever_kind_of_loader_it_is_examined(doctor, how, batch_size):
    facts = facts_of(doctor("examined.py", *how, flags=["--json", "--limit-s=25"]))
    assert (facts.why, facts.setup.batch_size) == ("", batch_size)
    assert facts.setup.num_workers == 2
    assert facts.free.rate > 2 * facts.plain.rate
    assert facts.costs.why == "" and facts.costs.nbytes == pytest.approx(3 * 32 * 32 * 4, abs=20)
    assert {trial.why for trial in facts.trials} == {""}
    rates = [trial.rate for trial in facts.trials]
    # Two workers on two cores, plain and not: as fast, but for what else the machine does.
    assert all(0.4 * facts.plain.rate < rate < 4 * facts.plain.rate for rate in rates)


@pytest.mark.full
def test_a_script_that_fails_while_it_is_examined_shows_its_error(doctor):
    result = doctor("examined.py", "breaks", flags=["--steps=1000"])
    assert result.returncode == 4
    assert "not all was seen: the script ended after 59 steps" in result.stdout
    assert "ValueError: of the script's own" in result.stderr


@pytest.mark.full
def test_ranks_with_short_epochs_wait_for_each_other_to_the_end(doctor):
    """All go on to free batches at the same step: else one would leave its epoch, and the other wait for it."""
    command = [*TORCHRUN, "split.py", "data=0.005,ranks=0.02,epoch=7", MANY]
    facts = facts_of(doctor(*command, flags=["--json", "--limit-s=20"]))
    assert (facts.why, facts.setup.world_size) == ("", 2)
    assert facts.free is not None


CANNOT = {
    "fails": (["-c", "raise KeyError('its own')"], 4, "KeyError: 'its own'"),
    "no loader": (
        ["-c", "import torch.utils.data"],
        5,
        "nothing to examine: no loader of a Python",
    ),
    "one batch": (
        ["split.py", "data=0.001", "1"],
        5,
        "the script ended before one of its loaders had given",
    ),
    "no such file": (["nowhere.py"], 4, "No such file"),
}


@pytest.mark.parametrize(("command", "code", "text"), CANNOT.values(), ids=CANNOT)
@pytest.mark.few(1)
def test_what_cannot_be_examined_is_told_why(doctor, command, code, text):
    result = doctor(*command)
    assert result.returncode == code, result.stdout + result.stderr
    assert text in result.stdout


@pytest.mark.parametrize(
    "flags", [["--steps=2"], ["--limit-s=0"], ["--price-worker=x"], ["--chains=3"]]
)
@pytest.mark.few(1)
def test_wrong_flags_are_refused(doctor, flags):
    result = doctor("split.py", "data=0.01", MANY, flags=flags)
    assert result.returncode == 2
    assert flags[0].partition("=")[0] in result.stderr


def test_ctrl_c_leaves_nothing(tmp_path):
    command = [*examining(), "split.py", "data=0.01", MANY]
    with started(command, tmp_path) as running:
        running.wait_for("in the loop")
        running.signal(signal.SIGINT)
        result = running.finish()
    assert result.returncode == 128 + signal.SIGINT
    assert result.leftovers == {}
    assert [file for file in result.left_files() if "stoker" in file] == []


@pytest.mark.full
def test_a_dataset_that_fails_in_a_copy_is_told_and_the_rest_is_known(doctor):
    facts = facts_of(doctor("examined.py", "alone", flags=["--json", "--limit-s=20"]))
    assert facts.costs.why.startswith("RuntimeError: only in the first process")
    assert bound_of(facts.plain.split)[0] == "data"
    assert [trial.is_left for trial in facts.trials if trial.why] == [False, False]
