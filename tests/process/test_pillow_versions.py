"""Fast images under the oldest and the newest Pillow that stoker knows, and one between: the same pixels, errors and batches."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from stoker.images.pillow import KNOWN

pytestmark = pytest.mark.full  # each fetches a package

ROOT = Path(__file__).resolve().parents[2]
TESTS = [
    "tests/unit/images",
    "tests/equality/test_fast_images.py",
    "tests/equality/test_odd_images.py",
    "tests/equality/test_image_files.py",
]
LOOK = "import PIL; from PIL import Image; from stoker.images.pillow import *; print(PIL.__version__, pillow())"


def version_of(numbers):
    """The last of the versions that begin with these numbers."""
    major, minor = numbers
    return f"pillow>={major}.{minor},<{major}.{minor + 1}"


# The oldest; the last that always resamples across before down; the newest.
CHOSEN = [
    min(KNOWN),
    max(n for n, goes_down_first in KNOWN.items() if not goes_down_first),
    max(KNOWN),
]


@pytest.mark.parametrize("numbers", CHOSEN, ids=lambda n: ".".join(map(str, n)))
def test_images_are_made_and_are_the_same(tmp_path, numbers):
    folder = tmp_path / "pillow"
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(folder)]
    fetched = subprocess.run([*pip, version_of(numbers)], capture_output=True, text=True)
    if fetched.returncode:
        pytest.skip(f"pip has no {version_of(numbers)}: {fetched.stderr[-200:]}")
    path = os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH", "")]))
    run = {
        "cwd": ROOT,
        "env": {**os.environ, "PYTHONPATH": path},
        "capture_output": True,
        "text": True,
    }
    seen = subprocess.run([sys.executable, "-c", LOOK], **run).stdout
    assert seen.startswith(".".join(map(str, numbers))) and "Pillow object" in seen, seen
    pytest_ = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "0", *TESTS]
    done = subprocess.run(pytest_, **run)
    assert done.returncode == 0, done.stdout[-4000:]
