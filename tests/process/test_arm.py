"""The compiled image code for 64-bit ARM, under emulation, beside Pillow's wheel for it."""

import json
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.full  # it is emulated: half a minute

ROOT = Path(__file__).parents[2]


def test_images_are_pillows_on_arm():
    if not (ROOT / ".data" / "arm" / "site").is_dir():
        pytest.skip("scripts/arm, which needs root, has not fetched an ARM Python yet")
    done = subprocess.run([ROOT / "scripts" / "arm", "20"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-4000:]
    counts = json.loads(done.stdout)
    assert min(counts["sound"], counts["decoded"], counts["resampled"], counts["tensors"]) > 20, (
        counts
    )
