#!/usr/bin/env python3
"""Pack this Python environment for the worker machines: the same versions, from lists.

usage: python deploy/pack.py [FOLDER]      default: ~/stoker-workers; run it with the trainer's Python

FOLDER then holds stoker's wheel, python.txt, torch.txt, packages.txt, and install.sh, which makes
an environment of them. Every deployment in this folder installs from there.

Promise: the lists name the versions that this environment has, to the patch: a batch made with
others need not be the same. What cannot be had by name and version is told, not dropped silently.
Ban: no secret is packed; needs nothing but pip (for the wheel) and the standard library.
"""

import importlib.metadata
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

HERE = Path(__file__).resolve().parent
FOLDER = Path("~/stoker-workers")
TORCH = {"torch", "torchaudio", "torchvision"}  # theirs is another index: a CPU or a CUDA build
CUDA = re.compile(r"nvidia-|cuda-|triton$")  # only the trainer's build of torch asks for these
OURS = {"stoker", "pip", "setuptools", "wheel", "uv"}


def normalised(name: str) -> str:
    """As package indexes write it. Source: PEP 503."""
    return re.sub(r"[-_.]+", "-", name).lower()


def pins(
    installed: Iterable[importlib.metadata.Distribution],
) -> tuple[list[str], list[str], list[str]]:
    """(torch's lines, all others', names that no index has: installed from a folder or an URL)."""
    torch, others, nameless = set(), set(), set()
    for package in installed:
        name = normalised(package.metadata["Name"])
        line = f"{name}=={package.version}"
        if name in TORCH:
            torch.add(line.partition("+")[0])  # 2.13.0+cu130 here is 2.13.0+cpu there
        elif name in OURS or CUDA.match(name):
            continue
        elif package.read_text("direct_url.json"):
            nameless.add(name)
        else:
            others.add(line)
    return sorted(torch), sorted(others), sorted(nameless)


def write_lists(folder: Path) -> list[str]:
    """Writes the three lists; returns the names that are in none. Exits where ray is missing."""
    torch, others, nameless = pins(importlib.metadata.distributions())
    for needed, lines in (("torch", torch), ("ray", others)):
        if not any(line.startswith(f"{needed}==") for line in lines):
            sys.exit(
                f"pack: {needed} is not installed for {sys.executable}; install the trainer's "
                f'environment first (`pip install ".[cluster]"`), then run pack.py with its Python'
            )
    (folder / "python.txt").write_text(platform.python_version() + "\n")
    (folder / "torch.txt").write_text("\n".join(torch) + "\n")
    (folder / "packages.txt").write_text("\n".join(others) + "\n")
    return nameless


def main(argv: list[str]) -> int:
    if len(argv) > 1 or argv[:1] in (["-h"], ["--help"]):
        print(__doc__)
        return 0 if len(argv) == 1 else 2
    folder = Path(argv[0] if argv else FOLDER).expanduser()
    folder.mkdir(parents=True, exist_ok=True)
    nameless = write_lists(folder)
    for old in folder.glob("stoker-*.whl"):
        old.unlink()
    wheel = ["pip", "wheel", "-q", "--no-deps", "--wheel-dir", str(folder), str(HERE.parent)]
    subprocess.run([sys.executable, "-m", *wheel], check=True)
    shutil.copy(HERE / "install.sh", folder)
    print(f"pack: {folder} holds {', '.join(sorted(p.name for p in folder.iterdir()))}")
    for name in nameless:
        print(f"pack: {name} came from a folder or an URL: put its wheel into {folder} yourself")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
