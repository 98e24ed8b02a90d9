"""What cores elsewhere gain for one GPU: gpu_train.py, held to two cores, the others a Ray node's.

In turn: torch with the num_workers of 3, 4 and 6 that suits it best, and stoker on the same two cores;
then both again while Ray is up, torch and stoker with the Ray node, whose batches are those of as many
workers as there are cores (--chains). Nothing is remembered (--cache off): in so short a time no sample
comes twice. Prints the medians of images_per_s, of what stoker gains over torch in the same turn, and
of_gpu, the Ray side's share of what the step alone can do; and all turns.
Needs a CUDA device and 4 cores. Not a plain script: it runs one under both.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from join import HERE, ray_of_two
from one_side import print_line
from photos import photo_folder

TRIED = (3, 4, 6)  # num_workers of torch's
SECONDS = ("--warm-s", "4", "--count-s", "4")
SECONDS_OF_RAY = ("--warm-s", "20", "--count-s", "4")  # until all that was drawn before is used up
LIMIT_S = 120.0


class Sides:
    """gpu_train.py in a copy of this folder, which is what is sent to the other node."""

    def __init__(self, folder: str, cores: str) -> None:
        self.folder, self.cores = folder, cores
        for file in HERE.glob("*.py"):
            shutil.copy(file, folder)

    def run(
        self,
        num_workers: int,
        run_flags: tuple[str, ...] | None = None,
        env: dict[str, str] | None = None,
    ) -> dict[str, float]:
        """What it printed. run_flags: of `stoker run`; None: torch alone. env: of who uses Ray."""
        report = Path(self.folder, "report.json")
        prefix = [sys.executable]
        if run_flags is not None:
            flags = ("--quiet", f"--report-json={report}", *run_flags, "--")
            prefix = [sys.executable, "-m", "stoker", "run", *flags, sys.executable]
        words = [f"{self.folder}/gpu_train.py", "--num-workers", str(num_workers)]
        words += SECONDS if env is None else SECONDS_OF_RAY
        command = ["taskset", "-c", self.cores, *prefix, *words]
        done = subprocess.run(
            command, env=env, cwd=self.folder, stdout=subprocess.PIPE, text=True, timeout=LIMIT_S
        )
        if done.returncode:
            raise SystemExit(f"{command}: {done.returncode}")
        line = json.loads(done.stdout.splitlines()[-1])
        if run_flags is not None:
            (loader,) = json.loads(report.read_text())["loaders"]
            line |= {"of_away": loader["num_away"] / loader["num_batches"]}
        print(num_workers, run_flags, json.dumps(line), file=sys.stderr, flush=True)
        return line


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=2)
    flags = parser.parse_args()
    photo_folder()
    cores = [str(core) for core in sorted(os.sched_getaffinity(0))]
    here, elsewhere = ",".join(cores[:2]), ",".join(cores[2:])
    off = ("--cache", "off")
    with tempfile.TemporaryDirectory() as folder:
        sides = Sides(folder, here)
        rates = {w: sides.run(w)["images_per_s"] for w in TRIED}
        best = max(rates, key=rates.__getitem__)
        same = [(sides.run(best), sides.run(2, off)) for _ in range(flags.rounds)]
        with ray_of_two(here, elsewhere, len(cores) - 2) as (address, env, _):
            on_ray = (*off, f"--chains={len(cores)}", f"--cluster={address}")
            sides.run(2, on_ray, env)  # Ray's node compiles
            away = [(sides.run(best), sides.run(2, on_ray, env)) for _ in range(flags.rounds)]
    line = {f"torch_{w}_images_per_s": rate for w, rate in rates.items()}
    for name, turns in (("same", same), ("ray", away)):
        gains = [ours["images_per_s"] / theirs["images_per_s"] for theirs, ours in turns]
        line[f"{name}_gain"] = statistics.median(gains)
        line[f"{name}_images_per_s"] = statistics.median(o["images_per_s"] for _, o in turns)
        line[f"torch_beside_{name}_images_per_s"] = statistics.median(
            theirs["images_per_s"] for theirs, _ in turns
        )
        line[f"{name}_gains"] = gains
    shares = [ours["images_per_s"] / ours["step_images_per_s"] for _, ours in away]
    line |= {"of_gpu": statistics.median(shares), "num_away_cores": len(cores) - 2}
    print_line({**line, "of_away": statistics.median(ours["of_away"] for _, ours in away)})


if __name__ == "__main__":
    main()
