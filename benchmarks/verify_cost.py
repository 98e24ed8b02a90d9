"""What `stoker verify` takes on the demo's training script, beside its batches plain.

One epoch of 50 batches of examples/images/train.py. Under Python: the script alone, and what it
says its epoch took. Under stoker: `stoker verify` on the same command. Prints seconds.
"""

import os
import re
import subprocess
import sys
import time
from pathlib import Path

from one_side import print_line
from photos import photo_folder

NUM_BATCHES, BATCH_SIZE = 50, 20
EPOCH_LINE = re.compile(r"images in ([\d.]+) s")


def training() -> list[str]:
    script = Path(__file__).resolve().parent.parent / "examples" / "images" / "train.py"
    limit = NUM_BATCHES * BATCH_SIZE
    return [
        sys.executable, str(script), "--data", str(photo_folder()), "--epochs", "1",
        "--batch-size", str(BATCH_SIZE), "--limit", str(limit),
    ]  # fmt: skip


def main() -> None:
    armed = "STOKER_RUN" in os.environ
    environ = {k: v for k, v in os.environ.items() if not k.startswith("STOKER_")}
    verify = [sys.executable, "-m", "stoker", "verify", "--batches", str(NUM_BATCHES), "--"]
    command = [*verify, *training()] if armed else training()
    began_s = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, env=environ)
    seconds = time.perf_counter() - began_s
    if done.returncode:
        sys.exit(f"{done.stdout}{done.stderr}")
    if not armed:
        seconds = float(EPOCH_LINE.findall(done.stdout)[0])
    print_line({"seconds": seconds})


if __name__ == "__main__":
    main()
