"""Train examples/images/train.py plain and under stoker, and print seconds by epoch side by side.

Promise: the timed plain side is plain Python, with nothing of stoker in it; both sides get the same
  arguments; every figure is the median of its runs. Exit code 1 where the batches differ.
Batches are hashed in runs of their own, which are not timed; `stoker run --off` leaves every loader
to torch and only hashes.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import re
import resource
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
PHOTOS = ROOT / ".data" / "demo-photos"
# Photographs of about two megapixels, smaller than a phone's: decoding and cropping them is the work.
MAKE_PHOTOS = ("--count", "640", "--long-side", "1200", "2000")
# A model so small that data is the limit, as it is beside a GPU; a fifth for validation.
TRAIN = ("--width", "4", "--val-frac", "0.2")
EPOCH_LINE = re.compile(r"^epoch .* images in (?P<seconds>[\d.]+) s", re.MULTILINE)
WORTH_SAYING = 1.05  # a gain or a loss; single runs differ by less than that on a quiet machine
# Below this share of its epochs spent waiting, a run has little that a faster loader could give it.
FRAC_MODEL_IS_LIMIT = 0.10
FRAC_BUSY = 0.10  # of the cores' time, taken by other processes
PR_SET_CHILD_SUBREAPER = 36  # <linux/prctl.h>


@dataclass
class Run:
    """One run of the script: what it printed, and stoker's report where there was one.

    others_s: CPU seconds that other processes took meanwhile, on the cores that we may use.
    """

    wall_s: float
    others_s: float
    stdout: str
    stderr: str
    report: dict[str, Any] = field(default_factory=dict)

    @property
    def epochs_s(self) -> list[float]:
        return [float(epoch["seconds"]) for epoch in EPOCH_LINE.finditer(self.stdout)]

    @property
    def frac_waited(self) -> float:
        return float(sum(loader["wait_s"] for loader in self.report["loaders"])) / sum(
            self.epochs_s
        )

    @property
    def digests(self) -> list[str]:
        return [d for loader in self.report["loaders"] for d in loader["batches_sha256"]]


def used_cpu_s() -> float:
    """CPU seconds that anybody has used, the hypervisor's other guests included, on our cores."""
    names = {f"cpu{core}" for core in os.sched_getaffinity(0)}
    rows = [line.split() for line in Path("/proc/stat").read_text().splitlines()]
    ticks = 0
    for name, *counts in rows:
        if name in names:
            user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, counts[:8])
            ticks += user + nice + system + irq + softirq + steal
    return ticks / os.sysconf("SC_CLK_TCK")


def adopt_orphans() -> None:
    """Have all processes that come of ours counted by `children_cpu_s`, their parent gone or not."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def children_cpu_s() -> float:
    """CPU seconds of all processes that we have started; waits until all of them have ended."""
    try:
        while True:
            os.wait()
    except ChildProcessError:
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return used.ru_utime + used.ru_stime


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
        others_s = children_cpu_s() - used_cpu_s()
        start = time.perf_counter()
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
        wall_s = time.perf_counter() - start
        others_s += -children_cpu_s() + used_cpu_s()
        run = Run(wall_s, others_s, done.stdout, done.stderr)
        if done.returncode != 0 or not run.epochs_s:
            words = f"{done.stdout}{done.stderr}"
            sys.exit(f"{words}demo: exit code {done.returncode} from: {' '.join(command)}")
        if stoker_flags is not None:
            run.report = json.loads(report.read_text())
    return run


def seconds_rows(runs: list[Run]) -> dict[str, float]:
    """Each epoch, their sum and the whole command, in seconds: the median of the runs. Pure."""
    by_epoch = [
        statistics.median(times) for times in zip(*(run.epochs_s for run in runs), strict=True)
    ]
    rows = {f"epoch {number}, s": seconds for number, seconds in enumerate(by_epoch, 1)}
    rows["all epochs, s"] = statistics.median(sum(run.epochs_s) for run in runs)
    return rows | {"whole command, s": statistics.median(run.wall_s for run in runs)}


def table(plain: dict[str, float], ours: dict[str, float]) -> str:
    lines = [f"{'':16}  {'plain':>7}  {'stoker':>7}", "-" * 34]
    return "\n".join(
        [*lines, *(f"{name:16}  {plain[name]:7.1f}  {ours[name]:7.1f}" for name in plain)]
    )


def verdict(plain_s: float, ours_s: float, num_epochs: int, frac_waited: float) -> str:
    """What the figures mean, in one sentence, where the batches are the same. Pure."""
    epochs = "epoch" if num_epochs == 1 else f"{num_epochs} epochs"
    told = f"The same {epochs}, the same batches: {ours_s:.1f} s instead of {plain_s:.1f} s"
    gain = plain_s / ours_s
    if gain >= WORTH_SAYING:
        return f"{told}, {gain:.1f}x as fast."
    if gain <= 1 / WORTH_SAYING:
        return f"{told}: stoker is slower here."
    if frac_waited < FRAC_MODEL_IS_LIMIT:
        return f"{told}: no gain, since the model is the limit and not the data."
    return f"{told}: no gain, though the training loop waits for data; try `stoker doctor`."


def unequal(plain: list[str], ours: list[str]) -> str:
    """What is wrong with the batches' hashes; empty where all are equal. Pure."""
    if plain == ours and plain:
        return ""
    num_equal = sum(a == b for a, b in zip(plain, ours, strict=False))
    return (
        f"The batches differ: {num_equal} of {len(plain)} plain and {len(ours)} stoker batches "
        "have equal hashes. If the script itself repeats its batches, this is a bug: please report it."
    )


def busy(runs: list[Run]) -> str:
    """Whether other processes disturbed these runs, in one sentence; empty where they did not."""
    frac = sum(run.others_s for run in runs) / (cores() * sum(run.wall_s for run in runs))
    if frac < FRAC_BUSY:
        return ""
    return (
        f"The machine was busy: other processes took {frac:.0%} of the time of its {cores()} cores, "
        "so do not trust these seconds; run it again when the machine is quiet."
    )


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
        prog="scripts/demo", description="train.py plain and under stoker; seconds by epoch"
    )
    parser.add_argument("--data", type=Path, default=PHOTOS)
    parser.add_argument("--pairs", type=int, default=1, help="timed runs of each side (default 1)")
    parser.add_argument("--epochs", type=int, default=5, help="of each run (default 5)")
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--workers", type=int, default=cores(), help="default: the cores")
    parser.add_argument("--limit", type=int, help="use this many photographs (default: all)")
    args = parser.parse_args()
    if args.pairs < 1 or args.workers < 1 or args.epochs < 1:
        parser.error("--pairs, --workers and --epochs must be at least 1")
    return args


def training_command(args: argparse.Namespace) -> list[str]:
    command = [sys.executable, str((EXAMPLE / "train.py").relative_to(ROOT)), *TRAIN]
    command += ["--data", str(args.data.resolve()), "--epochs", str(args.epochs)]
    command += ["--batch-size", str(args.batch_size), "--workers", str(args.workers)]
    return [*command, "--limit", str(args.limit)] if args.limit else command


def main() -> int:
    args = parse_args()
    # Both sides. OpenMP's threads wait by spinning, which takes the cores from the loader's workers:
    # on 2 cores without a GPU an epoch of plain torch took 37 s without this and 14 s with it.
    # torchrun sets the same.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    adopt_orphans()
    if not args.data.exists():
        print("demo: making the photographs (once)", file=sys.stderr, flush=True)
        photos = [sys.executable, str(EXAMPLE / "photos.py"), str(args.data), *MAKE_PHOTOS]
        subprocess.run(photos, check=True)
    command = training_command(args)

    hashed_plain = run_once("hashing the plain batches", command, ["--off", "--hash-batches"])
    hashed_ours = run_once("hashing stoker's batches", command, ["--hash-batches"])
    plain: list[Run] = []
    ours: list[Run] = []
    for pair in range(args.pairs):
        plain.append(run_once(f"timing pair {pair + 1} of {args.pairs}: plain", command))
        ours.append(run_once(f"timing pair {pair + 1} of {args.pairs}: stoker", command, []))

    threads = os.environ["OMP_NUM_THREADS"]
    print(f"OMP_NUM_THREADS={threads} python {' '.join(command[1:])}")
    print(f"{cores()} cores, median of {args.pairs}\n" if args.pairs > 1 else f"{cores()} cores\n")
    plain_s, ours_s = seconds_rows(plain), seconds_rows(ours)
    print(table(plain_s, ours_s))
    print()
    wrong = unequal(hashed_plain.digests, hashed_ours.digests)
    if not wrong:
        print(f"{len(hashed_ours.digests)} batches of each side: all hashes equal")
    waited = statistics.median(run.frac_waited for run in ours)
    sums = plain_s["all epochs, s"], ours_s["all epochs, s"]
    said = wrong or verdict(*sums, args.epochs, waited)
    for line in [*not_offloaded(ours[-1]), said, busy([*plain, *ours])]:
        if line:
            print(line)
    print(ours[-1].stderr, file=sys.stderr, end="")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
