"""What cores elsewhere gain for one GPU: gpu_train.py, held to two cores, the others a Ray node's.

In turn: torch with the num_workers of 3, 4 and 6 that suits it best; stoker on the same two cores;
stoker with the Ray node, whose batches are those of as many workers as there are cores (--chains);
stoker on the two cores with what it remembers. The first three remember nothing (--cache off). Prints images_per_s of each, the medians of what each gains over torch, and
of_gpu, the Ray side's share of what the step alone can do.
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
    found: dict[str, list[float]] = {"torch": [], "same": [], "ray": [], "remembered": []}
    steps: list[float] = []
    away: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        sides = Sides(folder, here)
        rates = {w: sides.run(w)["images_per_s"] for w in TRIED}
        best = max(rates, key=rates.__getitem__)
        with ray_of_two(here, elsewhere, len(cores) - 2) as (address, env, _):
            off = ("--cache", "off")
            on_ray = (*off, f"--chains={len(cores)}", f"--cluster={address}")
            sides.run(2, on_ray, env)  # Ray's node compiles
            for _ in range(flags.rounds):
                lines = {
                    "torch": sides.run(best),
                    "same": sides.run(2, off),
                    "ray": sides.run(2, on_ray, env),
                    "remembered": sides.run(2, ()),
                }
                steps.append(lines["ray"]["step_images_per_s"])
                away.append(lines["ray"]["of_away"])
                for name, line in lines.items():
                    found[name].append(line["images_per_s"])
    line = {f"{name}_images_per_s": statistics.median(each) for name, each in found.items()}
    for name in ("same", "ray", "remembered"):
        pairs = zip(found[name], found["torch"], strict=True)
        line[f"{name}_gain"] = statistics.median(ours / theirs for ours, theirs in pairs)
    shares = zip(found["ray"], steps, strict=True)
    line["of_gpu"] = statistics.median(rate / step for rate, step in shares)
    line |= {f"torch_{w}_images_per_s": rate for w, rate in rates.items()}
    line |= {"num_away_cores": len(cores) - 2, "step_images_per_s": statistics.median(steps)}
    print_line({**line, "of_away": statistics.median(away)})


if __name__ == "__main__":
    main()
