"""The examples of remembered work: the same losses plain and under stoker, and work that is remembered."""

import importlib.util
import re
import sys
from pathlib import Path

import pytest

from tests.process.harness import finished, under_stoker

ROOT = Path(__file__).parents[2]
EXAMPLES = {
    "medical": (
        ["nibabel"],
        "volumes.py",
        ["--count", "4"],
        ["--epochs", "12", "--batch-size", "1"],
    ),
    "video": (["av"], "clips.py", ["--count", "8", "--seconds", "1"], ["--epochs", "9"]),
    "audio": (["torchaudio", "soundfile"], "sounds.py", ["--count", "40"], ["--epochs", "5"]),
}


@pytest.mark.parametrize(
    "name", ["video", "audio", pytest.param("medical", marks=pytest.mark.full)]
)
def test_an_example_trains_alike_and_its_work_is_remembered(name, tmp_path):
    needs, maker, make_flags, flags = EXAMPLES[name]
    for module in needs:
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"needs {module}")
    folder, data = ROOT / "examples" / name, tmp_path / "data"
    made = finished(
        [sys.executable, str(folder / maker), str(data), *make_flags], tmp_path / "made"
    )
    assert made.returncode == 0, made.stderr
    command = [sys.executable, str(folder / "train.py"), "--data", str(data), *flags]
    plain = finished(command, tmp_path / "plain")
    report = f"--report-json={tmp_path / 'ours' / 'report.json'}"
    ours = finished([*under_stoker(report), *command], tmp_path / "ours")
    assert ours.leftovers == {}
    assert losses(plain.stdout) == losses(ours.stdout)
    (place,) = ours.report["cache"]["places"]
    assert place["why"] == ""
    assert place["num_differed"] == 0
    assert place["num_hits"] > place["num_samples"]


def losses(text):
    found = re.findall(r"loss (\S+),", text)
    assert found
    return found
