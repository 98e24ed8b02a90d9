"""`stoker probe` on real ranks: a table, the reasons why there is none, and nothing left behind."""

import re
import signal
import sys

import pytest

from tests.process.ddp import NUM_RANKS, Ran, bits, flat
from tests.process.harness import finished, started

TORCHRUN = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={NUM_RANKS}"]


def probing(*flags):
    return [sys.executable, "-m", "stoker", "probe", *flags, "--", sys.executable]


@pytest.fixture(scope="module")
def environ():
    return {"OMP_NUM_THREADS": "1"}


@pytest.fixture
def probe(tmp_path, environ):
    def run(*command, flags=()):
        result = finished([*probing(*flags), *command], tmp_path, environ=environ)
        assert result.leftovers == {}
        assert [file for file in result.left_files() if "stoker" in file] == []
        return result

    return run


@pytest.mark.full
@pytest.mark.parametrize("what", ["", "two"], ids=["one model", "two models"])
def test_links_step_and_schemes_are_told_and_the_script_is_ended(probe, what):
    result = probe(*TORCHRUN, "probed.py", what)
    assert result.returncode == 0, result.stdout + result.stderr
    lines = result.stdout.splitlines()
    assert lines[0].startswith(f"links of {NUM_RANKS} ranks, gloo on cpu; ")
    sizes = [line for line in lines if re.match(r" +\d+ [KM]iB ", line)]
    assert len(sizes) >= 3
    assert all(re.search(r"[\d.]+ m?s +[\d.]+ [MG]B/s$", line) for line in sizes)
    assert "a step of Sequential, 321,600 parameters in 4 buckets: " in result.stdout
    for scheme, share in (("bf16", 1.0), ("8bit", 0.6), ("4bit", 0.35)):
        (line,) = [line for line in lines if line.split()[:1] == [scheme]]
        sent, unit = line.split()[1:3]
        assert unit == "KiB" and float(sent) < share * 8 / 3 * 2 * 321_600 / 1024
    assert lines[-1].startswith("bound by: ")


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("what", "code", "text"),
    [
        ("hook", 5, "the script registered a communication hook of its own, which is used"),
        ("short", 5, "nothing to measure: no DistributedDataParallel of several ranks, each under "
                     "stoker probe, took a dozen steps: it ended before"),
        ("fails", 4, "RuntimeError: this rank fails"),
    ],
)  # fmt: skip
def test_what_cannot_be_measured_is_told_why(probe, what, code, text):
    result = probe(*TORCHRUN, "probed.py", what)
    assert result.returncode == code, result.stdout + result.stderr
    assert text in result.stdout


@pytest.mark.full
def test_without_ranks_nothing_is_measured_by_the_limit(probe):
    result = probe("-c", "import time; time.sleep(600)", flags=["--limit-s", "1"])
    assert result.returncode == 5
    assert result.stdout.endswith("none within 1 s; raise --limit-s\n")


@pytest.mark.full
def test_ctrl_c_ends_all_of_it(tmp_path, environ):
    with started([*probing(), "probed.py", "alone"], tmp_path, environ=environ) as running:
        running.wait_for("epoch")
        running.process.send_signal(signal.SIGINT)
        result = running.finish()
    assert result.returncode == 128 + signal.SIGINT
    assert result.leftovers == {}


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--limit-s", "0", "--", "python"], "--limit-s: got '0'; give seconds > 0"),
        (["--batches", "3", "--", "python"], "unknown flag '--batches' before the command"),
        (["--", "stoker", "run", "x.py"], "probe runs the script itself; leave 'stoker run' out"),
        (["--", "no_such.py"], "no such script: 'no_such.py'"),
        ([], "no command given; write: stoker probe [flags] -- python train.py"),
    ],
)
def test_wrong_flags_are_told(tmp_path, words, text):
    result = finished([sys.executable, "-m", "stoker", "probe", *words], tmp_path)
    assert result.returncode == 2
    assert text in result.stderr


@pytest.mark.full
def test_while_it_is_watched_gradients_are_ddps_own_to_the_bit(tmp_path_factory):
    """Run to its end, which the command would prevent."""
    tmp_path = tmp_path_factory.mktemp("watched")  # torch's workers have sockets below it
    plain = Ran(tmp_path / "plain", None, ["from_a_loader"])
    folder = tmp_path / "probe"
    folder.mkdir()
    more = {"STOKER_RUN": "1", "STOKER_OFF": "1", "STOKER_PROBE": str(folder)}
    watched = Ran(tmp_path / "watched", None, ["from_a_loader"], **more)
    assert (folder / "probed.json").exists()
    for theirs, ours in zip(
        plain.saved("from_a_loader"), watched.saved("from_a_loader"), strict=True
    ):
        pairs = zip(flat(theirs), flat(ours), strict=True)
        assert all((bits(a) == bits(b)).all() for a, b in pairs)
