"""How long from `pip install` of stoker's wheel to the first batch under stoker, beside torch alone.

A virtual environment into which pip has put torch and nothing else; it and the wheel are made
before, and not counted. Then, several times: pip install WHEEL, `stoker run -- python first.py`, pip
uninstall. Prints medians of install_s, first_s (start of the command to its first batch) and all_s.
Not a plain script: it runs one under stoker; there is one side only.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from one_side import print_line

ROOT = Path(__file__).resolve().parents[1]
FIRST = """\
import time, torch
from torch.utils.data import DataLoader, TensorDataset
for batch in DataLoader(TensorDataset(torch.rand(1000, 3, 32, 32)), 64, num_workers=2):
    print(time.time())
    break
"""


def call(*words: object, cwd: Path) -> str:
    """What a command prints, in a user's surroundings; it must succeed."""
    ours = ("PYTHON", "VIRTUAL_ENV", "STOKER_")
    env = {key: value for key, value in os.environ.items() if not key.startswith(ours)}
    command = [str(word) for word in words]
    return subprocess.run(
        command, cwd=cwd, env=env, check=True, stdout=subprocess.PIPE, text=True
    ).stdout


def run_once(python: Path, wheel: Path, cwd: Path) -> dict[str, float]:
    begin_s = time.time()
    call(python, "-m", "pip", "install", "-q", wheel, cwd=cwd)
    installed_s = time.time()
    stoker = (python.with_name("stoker"), "run", "--quiet", "--")
    first_s = float(call(*stoker, python, "first.py", cwd=cwd).split()[0])
    call(python, "-m", "pip", "uninstall", "-q", "-y", "stoker", cwd=cwd)
    return {
        "install_s": installed_s - begin_s,
        "first_s": first_s - installed_s,
        "all_s": first_s - begin_s,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    flags = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "first.py").write_text(FIRST)
        call(sys.executable, "-m", "venv", "env", cwd=folder)
        python = folder / "env" / "bin" / "python"
        pip = (python, "-m", "pip")
        call(*pip, "install", "-q", "-c", ROOT / "scripts" / "constraints.txt", "torch", cwd=folder)
        source = folder / "source"  # a clone: building writes into the folder that is built
        call("git", "clone", "-q", ROOT, source, cwd=folder)
        call(*pip, "wheel", "-q", "--no-deps", "-w", folder, source, cwd=folder)
        (wheel,) = folder.glob("stoker-*.whl")
        lines = [run_once(python, wheel, folder) for _ in range(flags.rounds)]
    print_line({key: statistics.median(line[key] for line in lines) for key in lines[0]})


if __name__ == "__main__":
    main()
