"""What scripts/demo.py says of its runs; tests/bare runs it as a whole."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

FILE = Path(__file__).parents[2] / "scripts" / "demo.py"
spec = importlib.util.spec_from_file_location("demo", FILE)
demo = sys.modules["demo"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(demo)


@pytest.mark.parametrize(
    ("plain_s", "ours_s", "frac_waited", "says"),
    [
        (71.0, 38.0, 0.5, ": 38.0 s instead of 71.0 s, 1.9x as fast."),
        (38.0, 38.0, 0.02, ": no gain, since the model is the limit and not the data."),
        (38.0, 38.0, 0.5, ": no gain, though the training loop waits for data"),
        (38.0, 45.0, 0.5, ": stoker is slower here."),
    ],
)
def test_the_verdict_is_a_gain_only_where_there_is_one(plain_s, ours_s, frac_waited, says):
    told = demo.verdict(plain_s, ours_s, 5, frac_waited)
    assert told.startswith("The same 5 epochs, the same batches: ")
    assert says in told


@pytest.mark.parametrize(("plain", "ours"), [("ab", "ac"), ("ab", "a"), ("", "")])
def test_batches_that_differ_or_are_missing_are_never_called_the_same(plain, ours):
    assert demo.unequal(list(plain), list(ours)).startswith("The batches differ: ")
    assert demo.unequal(["a", "b"], ["a", "b"]) == ""


def test_figures_are_medians_of_seconds_by_epoch():
    line = "epoch {}/2  loss 0.5  accuracy 0.1  64 images in {} s  9.0 images/s\n"
    runs = [
        demo.Run(10.0 + x, 0.0, line.format(1, x) + line.format(2, 2.5), "") for x in (3.0, 5.0)
    ]
    assert demo.seconds_rows(runs) == {
        "epoch 1, s": 4.0, "epoch 2, s": 2.5, "all epochs, s": 6.5, "whole command, s": 14.0,
    }  # fmt: skip


def test_a_busy_machine_is_told_by_what_other_processes_took_of_it():
    of_cores = demo.cores() * 10.0
    quiet, loud = (demo.Run(10.0, frac * of_cores, "", "") for frac in (0.05, 0.4))
    assert demo.busy([quiet]) == ""
    assert "other processes took 40% of the time" in demo.busy([loud])


def test_processes_of_ours_whose_parent_has_gone_are_not_others():
    burn = "import time\nwhile time.process_time() < 0.5: pass"
    script = (
        f"import sys, subprocess\nsys.path.insert(0, {str(FILE.parent)!r})\nimport demo\n"
        "demo.adopt_orphans()\nbegan_s = demo.children_cpu_s()\n"
        f"subprocess.run(['sh', '-c', '\"$0\" -c \"$1\" &', sys.executable, {burn!r}])\n"
        "assert demo.children_cpu_s() - began_s >= 0.5\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
