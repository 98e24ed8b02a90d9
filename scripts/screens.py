"""Run the scripts of examples/screens in a terminal, plain and under stoker: docs/screens.md.

usage: scripts/screens.py [--only NAME ...] [--print]      --print writes nothing

Promise: a screen is what a terminal of 100 columns shows when the command has ended, read from a
real pseudo-terminal; nothing in it is typed by hand or left out. Both sides have OMP_NUM_THREADS=1, as scripts/demo.
"""

import argparse
import os
import pty
import subprocess
import sys
import termios
import time
from datetime import UTC, datetime
from pathlib import Path

import pyte

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES, PAGE, PHOTOS = (
    ROOT / "examples" / "screens",
    ROOT / "docs" / "screens.md",
    ROOT / ".data" / "photos",
)
ROWS, COLUMNS = 60, 100
NAMES = {
    "images": "Photographs in folders",
    "tensors": "Tensors in the script, no workers",
    "tokens": "Tokens from a mapped file",
    "audio": "WAV files to spectrograms",
    "lightning_fit": "Lightning",
    "compute": "The model is the limit",
}
LIMIT_S = 300


def screen_of(command: list[str], folder: Path = EXAMPLES, path: str = "") -> list[str]:
    """The rows that a terminal shows at the end. path: where commands are looked for first. Raises RuntimeError if the
    command fails."""
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (ROWS, COLUMNS))
    clean = {
        k: v
        for k, v in os.environ.items()
        if k not in ("NO_COLOR", "CI") and not k.startswith("STOKER_")
    }
    environ = clean | {"TERM": "xterm-256color", "OMP_NUM_THREADS": "1"}
    environ["PATH"] = f"{path}{os.pathsep}{environ['PATH']}" if path else environ["PATH"]
    process = subprocess.Popen(
        command, cwd=folder, env=environ, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
    )  # fmt: skip
    os.close(theirs)
    shown = pyte.Screen(COLUMNS, ROWS)
    stream = pyte.ByteStream(shown)
    while piece := _read(ours):
        stream.feed(piece)
    os.close(ours)
    rows = [row.rstrip() for row in shown.display]
    while rows and not rows[-1]:
        rows.pop()
    if process.wait(LIMIT_S):
        raise RuntimeError(
            "\n".join([f"{' '.join(command)} ends with {process.returncode}", *rows])
        )
    return rows


def _read(fd: int) -> bytes:
    try:
        return os.read(fd, 1 << 16)
    except OSError:  # nobody has the other end any more
        return b""


def section(name: str) -> str:
    """A script's heading and its two screens."""
    arguments = [str(PHOTOS)] if name == "images" else []
    plain = [sys.executable, f"{name}.py", *arguments]
    stoker = [sys.executable, "-m", "stoker", "run", "--", *plain]
    parts = [f"## {NAMES[name]}\n\n[`{name}.py`](../examples/screens/{name}.py)\n"]
    for shown, command in (
        (f"python {name}.py", plain),
        (f"stoker run -- python {name}.py", stoker),
    ):
        began_s = time.monotonic()
        rows = screen_of(command)
        rows.append(f"[{time.monotonic() - began_s:.1f} s from start to end]")
        parts.append("```text\n" + "\n".join([f"$ {shown}", *rows]) + "\n```\n")
    return "\n".join(parts)


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/screens.py", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=NAMES, default=list(NAMES))
    parser.add_argument("--print", action="store_true", help="write nothing")
    flags = parser.parse_args()
    if "images" in flags.only and not PHOTOS.exists():
        make = [sys.executable, str(ROOT / "examples" / "images" / "photos.py"), str(PHOTOS)]
        subprocess.run(make, check=True)
    text = (
        "# Screens\n\nSix typical scripts, plain and under stoker, as a terminal shows them when they have ended. Made by\n"
        f"`scripts/screens.py` on {datetime.now(UTC):%Y-%m-%d}, two CPU cores, `OMP_NUM_THREADS=1` on both sides; one run each, so "
        "the times are\nno figures ([those](benchmarks.md) are medians).\n\n"
    ) + "\n".join(map(section, flags.only))
    if flags.print:
        print(text, end="")
    else:
        PAGE.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
