"""The compiled image code under AddressSanitizer and UndefinedBehaviorSanitizer, fed with damage."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import stoker

pytestmark = pytest.mark.full  # to build and run it takes half a minute

NATIVE = Path(stoker.__file__).with_name("images") / "native"
SCRIPT = Path(__file__).with_name("scripts") / "fuzz_images.py"
SANITIZERS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=undefined")


def library_path(compiler: str, name: str) -> str:
    found = subprocess.run([compiler, f"-print-file-name={name}"], capture_output=True, text=True)
    return found.stdout.strip()


def test_damaged_files_and_odd_sizes_do_nothing_that_is_undefined(tmp_path):
    compiler = shutil.which("cc") or shutil.which("gcc")
    preloaded = compiler and [library_path(compiler, f"lib{name}.so") for name in ("asan", "ubsan")]
    if not compiler or not all(Path(path).is_absolute() for path in preloaded):
        pytest.skip("no C compiler with sanitizers")
    library = tmp_path / "libimages.so"
    sources = sorted(map(str, NATIVE.glob("*.c")))
    flags = ["-g", "-O1", "-ffp-contract=off", "-fPIC", "-shared", *SANITIZERS]
    subprocess.run([compiler, *flags, "-o", str(library), *sources], check=True)
    done = subprocess.run(
        [sys.executable, str(SCRIPT), str(library), "15"],
        env={**os.environ, "LD_PRELOAD": " ".join(preloaded), "ASAN_OPTIONS": "detect_leaks=0"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    counts = json.loads(done.stdout)
    assert min(counts["sound"], counts["decoded"], counts["resampled"], counts["tensors"]) > 20, (
        counts
    )
