"""The example scripts in a terminal, plain and under stoker: the same screen, and five lines more at most."""

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCREEN = re.compile(r"```text\n\$ (.*?)\n(.*?)\n```", re.DOTALL)
TIME = re.compile(r"[\d:.]+(s|it/s)?|\W")  # and what bars are drawn with


@pytest.mark.few(2)
@pytest.mark.xdist_group("timed")
@pytest.mark.parametrize("name", ["tokens", "compute", "audio", "tensors", "lightning_fit"])
def test_a_screen_is_the_plain_one_and_a_summary(name):
    if name == "lightning_fit" and find_spec("lightning") is None:  # 5 s to import
        pytest.skip("lightning is not installed")
    command = [sys.executable, ROOT / "scripts" / "screens.py", "--print", "--only", name]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    (_, plain), (command, ours) = SCREEN.findall(ran.stdout)
    assert command.startswith("stoker run -- ")
    rows = ours.splitlines()[:-1]
    begin = next(i for i, row in enumerate(rows) if row.startswith("stoker: "))
    told, shown = rows[begin:], rows[:begin]
    assert 3 <= sum(row.startswith("stoker: ") for row in told) <= 5
    assert [TIME.sub("", row) for row in shown] == [
        TIME.sub("", row) for row in plain.splitlines()[:-1]
    ]
    losses = [row for row in shown if "loss" in row or "checksum" in row]
    assert losses == [row for row in plain.splitlines() if "loss" in row or "checksum" in row]
    assert losses or name == "lightning_fit"
