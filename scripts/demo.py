"""Train examples/images/train.py plain and under stoker, in turn, and print one table.

Promise: the timed plain side is plain Python, with nothing of stoker in it; both sides get the same
  arguments; every figure is the median of its runs. Exit code 1 where the batches differ.
What the plain side cannot tell (time waited, the trainer's CPU seconds, batch hashes) is read from
`stoker run --off`, which leaves every loader to torch and only counts. Hashing runs are never timed.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
EXAMPLE = ROOT / "examples" / "images"
EPOCH_LINE = re.compile(r"loss (?P<loss>\S+)  (?P<images>\d+) images in (?P<seconds>[\d.]+) s")
# Below this share of its epochs spent waiting, a run has little that a faster loader could give it.
FRAC_WORTH_OFFLOADING = 0.10
# Both sides. OpenMP's threads wait by spinning, which takes the cores from the loader's workers:
# on 2 cores without a GPU an epoch of plain torch took 37 s without this and 14 s with it.
# torchrun sets the same.
os.environ.setdefault("OMP_NUM_THREADS", "1")


@dataclass
class Run:
    """One run of the script: what it printed, and stoker's report where there was one."""

    wall_s: float
    stdout: str
    stderr: str
    report: dict[str, Any] = field(default_factory=dict)

    @property
    def epochs(self) -> list[re.Match[str]]:
        return list(EPOCH_LINE.finditer(self.stdout))

    @property
    def epochs_s(self) -> float:
        return sum(float(epoch["seconds"]) for epoch in self.epochs)

    @property
    def samples_per_s(self) -> float:
        return sum(int(epoch["images"]) for epoch in self.epochs) / self.epochs_s

    @property
    def last_loss(self) -> str:
        return self.epochs[-1]["loss"]

    @property
    def wait_s(self) -> float:
        return float(sum(loader["wait_s"] for loader in self.report["loaders"]))

    @property
    def trainer_cpu_s(self) -> float:
        return float(self.report["trainer"]["cpu_s"])

    @property
    def digests(self) -> list[str]:
        return [d for loader in self.report["loaders"] for d in loader["batches_sha256"]]


def run_once(title: str, command: list[str], stoker_flags: list[str] | None = None) -> Run:
    """Run the training command; stoker_flags None: plain, else under `stoker run` with these.

    Raises SystemExit with the command's own words if it fails.
    """
    print(f"demo: {title}", file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.json")
        if stoker_flags is not None:
            ours = [sys.executable, "-m", "stoker", "run", "--report-json", str(report)]
            command = [*ours, *stoker_flags, "--", *command]
        start = time.perf_counter()
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
        wall_s = time.perf_counter() - start
        run = Run(wall_s, done.stdout, done.stderr)
        if done.returncode != 0 or not run.epochs:
            words = f"{done.stdout}{done.stderr}"
            sys.exit(f"{words}demo: exit code {done.returncode} from: {' '.join(command)}")
        if stoker_flags is not None:
            run.report = json.loads(report.read_text())
    return run


def table(rows: list[tuple[str, str, str, str]]) -> str:
    widths = [max(len(row[i]) for row in rows) for i in range(4)]
    lines = [
        "  ".join([row[0].ljust(widths[0]), *(row[i].rjust(widths[i]) for i in (1, 2, 3))]).rstrip()
        for row in rows
    ]
    return "\n".join([lines[0], "-" * len(lines[0]), *lines[1:]])


def compared(
    name: str, plain: list[float], ours: list[float], digits: int
) -> tuple[str, str, str, str]:
    """A row: both medians, and the median of the rounds' ratios (a busy moment hits a round whole)."""
    a, b = statistics.median(plain), statistics.median(ours)
    ratio = f"{median_ratio(ours, plain):.2f}x" if min(plain) > 0 else ""
    return name, f"{a:.{digits}f}", f"{b:.{digits}f}", ratio


def median_ratio(above: list[float], below: list[float]) -> float:
    return statistics.median(a / b for a, b in zip(above, below, strict=True))


def hash_row(plain: list[str], ours: list[str]) -> tuple[str, str, str, str]:
    num_equal = sum(a == b for a, b in zip(plain, ours, strict=False))
    if plain == ours and plain:
        return "batch hashes equal", str(len(plain)), str(len(ours)), "all equal"
    return "batch hashes equal", str(len(plain)), str(len(ours)), f"{num_equal} EQUAL, NOT ALL"


def verdict(plain: list[Run], counted: list[Run], ours: list[Run]) -> str:
    """What the figures mean, in one line."""
    frac_waited = statistics.median(run.wait_s / run.epochs_s for run in counted)
    gain = median_ratio([run.samples_per_s for run in ours], [run.samples_per_s for run in plain])
    waited = f"the plain run waits {frac_waited:.0%} of its epochs for data"
    if frac_waited < FRAC_WORTH_OFFLOADING:
        return f"{waited}: here the model is the limit, and a faster loader can gain little"
    return f"{waited}; under stoker it makes {gain:.2f}x the samples per second"


def not_offloaded(run: Run) -> list[str]:
    return [
        f"left to torch: {loader['place']}: {'; '.join(loader['reasons'])}"
        for loader in run.report["loaders"]
        if not loader["offloaded"]
    ]


def cores() -> int:
    return len(os.sched_getaffinity(0))


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="scripts/demo", description="train.py plain and under stoker, in turn; one table"
    )
    parser.add_argument("--data", type=Path, default=ROOT / ".data" / "photos")
    parser.add_argument("--pairs", type=int, default=2, help="timed runs of each side (default 2)")
    parser.add_argument("--epochs", type=int, default=1, help="of each run (default 1)")
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--workers", type=int, default=cores(), help="default: the cores")
    parser.add_argument(
        "--limit", type=int, default=1024, help="use this many photographs (default 1024; 0: all)"
    )
    args = parser.parse_args()
    if args.pairs < 1 or args.workers < 1 or args.epochs < 1:
        parser.error("--pairs, --workers and --epochs must be at least 1")
    return args


def training_command(args: argparse.Namespace) -> list[str]:
    command = [sys.executable, str((EXAMPLE / "train.py").relative_to(ROOT))]
    command += ["--data", str(args.data.resolve()), "--epochs", str(args.epochs)]
    command += ["--batch-size", str(args.batch_size), "--workers", str(args.workers)]
    return command if not args.limit else [*command, "--limit", str(args.limit)]


def main() -> int:
    args = parse_args()
    if not args.data.exists():
        print("demo: making the photographs (once)", file=sys.stderr, flush=True)
        photos = [sys.executable, str(EXAMPLE / "photos.py"), str(args.data)]
        subprocess.run(photos, check=True)
    command = training_command(args)

    hashed_plain = run_once("hashing torch's batches", command, ["--off", "--hash-batches"])
    hashed_ours = run_once("hashing stoker's batches", command, ["--hash-batches"])
    plain: list[Run] = []
    counted: list[Run] = []
    ours: list[Run] = []
    for pair in range(args.pairs):
        title = f"round {pair + 1} of {args.pairs}"
        plain.append(run_once(f"{title}: plain", command))
        counted.append(run_once(f"{title}: plain, counted", command, ["--off", "--quiet"]))
        ours.append(run_once(f"{title}: stoker", command, []))

    def row(name: str, figure: str, digits: int, side: list[Run]) -> tuple[str, str, str, str]:
        a, b = ([float(getattr(run, figure)) for run in runs] for runs in (side, ours))
        return compared(name, a, b, digits)

    digests = hashed_plain.digests, hashed_ours.digests
    threads = os.environ["OMP_NUM_THREADS"]
    print(f"OMP_NUM_THREADS={threads} python {' '.join(command[1:])}")
    print(f"{cores()} cores, median of {args.pairs}\n")
    print(
        table(
            [
                ("", "plain", "stoker", "stoker/plain"),
                row("samples/s", "samples_per_s", 1, plain),
                row("whole command, s", "wall_s", 1, plain),
                row("waited for data, s", "wait_s", 2, counted),
                row("trainer CPU, s", "trainer_cpu_s", 1, counted),
                ("loss of the last epoch", plain[-1].last_loss, ours[-1].last_loss, ""),
                hash_row(*digests),
            ]
        )
    )
    print()
    for line in [*not_offloaded(ours[-1]), verdict(plain, counted, ours)]:
        print(line)
    print(ours[-1].stderr, file=sys.stderr, end="")
    return 0 if digests[0] == digests[1] and digests[0] else 1


if __name__ == "__main__":
    sys.exit(main())
