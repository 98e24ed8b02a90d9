"""How long the scripts take for whoever has just cloned the project: seconds and minutes, set-up included.

`--what demo`: scripts/demo in a clone of the last commit, with an empty HOME; what pip takes to
install torch alone, in the same way, is measured before and taken off. Prints beyond_torch_s, and
plain's seconds over stoker's from the demo's table: epochs_speedup, command_speedup.
`--what test|full`: scripts/setup and then scripts/test, as CI would. Prints setup_min, test_min, and
which tests failed: num_failed, failed; all that they printed is kept in the folder for temporary files.
Not a plain script; there is one side only. A script that fails otherwise is not measured.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from one_side import print_line

ROOT = Path(__file__).resolve().parents[1]
TESTS_FAILED = 1  # pytest's exit code
NOT_OURS = ("PYTHON", "VIRTUAL_ENV", "STOKER_", "OMP_", "PYTEST_")


def timed(
    *command: str | Path, cwd: Path, home: Path, may_end_with: int = 0
) -> tuple[float, list[str]]:
    """Seconds that a command takes, and what it printed; exits with its last words if it fails."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(NOT_OURS)}
    start_s = time.perf_counter()
    done = subprocess.run(
        [str(word) for word in command], cwd=cwd, env=kept | {"HOME": str(home)},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    lines = done.stdout.splitlines()
    if done.returncode not in (0, may_end_with):
        last = "\n".join(lines[-30:])
        sys.exit(f"{' '.join(map(str, command))}: exit code {done.returncode}\n{last}")
    return time.perf_counter() - start_s, lines


def torch_alone_s(folder: Path, home: Path) -> float:
    """What pip takes to fetch and install torch and what it needs, as scripts/setup asks for it."""
    timed("python3", "-m", "venv", folder / "torch", cwd=folder, home=home)
    pinned = ("-c", ROOT / "scripts" / "constraints.txt")
    pip = (folder / "torch" / "bin" / "python", "-m", "pip", "install", "-q")
    return timed(*pip, *pinned, "torch", cwd=folder, home=home)[0]


def speedup(row: str, lines: list[str]) -> float:
    """plain / stoker in a row of the demo's table, in seconds."""
    found = re.search(rf"^{row}, s +([\d.]+) +([\d.]+)$", "\n".join(lines), re.MULTILINE)
    assert found, lines[-30:]
    return float(found[1]) / float(found[2])


def measured(what: str, folder: Path, words: list[str]) -> dict[str, object]:
    def home(name: str) -> Path:
        made = folder / name
        made.mkdir()
        return made

    clone = folder / "stoker"
    subprocess.run(["git", "clone", "-q", str(ROOT), str(clone)], check=True)
    if what == "demo":
        torch_s = torch_alone_s(folder, home("home-torch"))
        all_s, lines = timed(clone / "scripts" / "demo", *words, cwd=clone, home=home("home"))
        return {
            "all_s": all_s,
            "torch_s": torch_s,
            "beyond_torch_s": all_s - torch_s,
            "epochs_speedup": speedup("all epochs", lines),
            "command_speedup": speedup("whole command", lines),
        }
    users = home("home")
    setup_s, _ = timed(clone / "scripts" / "setup", what, cwd=clone, home=users)
    test = [clone / "scripts" / "test", *(["--full"] if what == "full" else []), *words]
    test_s, lines = timed(*test, cwd=clone, home=users, may_end_with=TESTS_FAILED)
    log = Path(tempfile.gettempdir(), f"stoker-fresh-clone-{what}.log")
    log.write_text("\n".join(lines))
    failed = [line for line in lines if line.startswith(("FAILED ", "ERROR "))]
    minutes = {"setup_min": setup_s / 60, "test_min": test_s / 60}
    told = {"num_failed": len(failed), "failed": failed, "pytest": lines[-1]}
    return minutes | {"both_min": sum(minutes.values())} | told


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--what", choices=("demo", "test", "full"), required=True)
    parser.add_argument("words", nargs="*", help="passed on to the script")
    flags = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        print_line(measured(flags.what, Path(folder), flags.words))


if __name__ == "__main__":
    main()
