"""What some tests need of a machine, and how they are skipped where it is missing."""

import os
import shutil
import sys
from ctypes.util import find_library
from pathlib import Path

import pytest

RAY = Path(sys.executable).with_name("ray")
NEEDS_RAY = pytest.mark.skipif(not RAY.exists(), reason="ray is not installed")
NEEDS_NAMESPACES = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("ip") is None or shutil.which("tc") is None,
    reason="needs root, ip and tc",
)
NEEDS_FUSE = pytest.mark.skipif(
    os.geteuid() != 0 or not Path("/dev/fuse").exists() or find_library("fuse3") is None,
    reason="needs root, /dev/fuse and libfuse3",
)
