"""What a worker machine's memory holds for one run: all processes there, but for what Ray needs idle.

A Ray of two nodes on addresses of this machine, as join.py's; the worker node has CPUS CPUs. The
run is machine_script.py, whose dataset holds 64 MB. As soon as every CPU of the node has made a
batch, memory is the sum of what its processes use (PSS), less the same before the run came.
Prints num_processes and memory_mib beyond the idle node's, and per_cpu_mib.
Not a plain script: it runs one under stoker; there is one side only.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from join import on, ray_of_two
from one_side import print_line
from processes import descendants, pss_nbytes

HERE = Path(__file__).resolve().parent
NUM_LOCAL = 8  # chains that may stay with the trainer; the rest go to the node


def below(pids: list[int]) -> list[int]:
    return [pid for root in pids for pid in (root, *descendants(root))]


def run_once(core: int, address: str, env: dict[str, str], roots: list[int], num_cpus: int) -> None:
    idle = below(roots)
    idle_nbytes = sum(map(pss_nbytes, idle))
    with tempfile.TemporaryDirectory() as folder:
        command = [*on(core), sys.executable, "-m", "stoker", "run", "--quiet"]
        command += [f"--cluster={address}", "--", sys.executable, str(HERE / "machine_script.py")]
        command += ["--num-workers", str(num_cpus + NUM_LOCAL)]
        made_by: set[int] = set()
        there: list[int] = []
        with subprocess.Popen(
            command, env=env, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as process:
            for line in process.stdout:
                if int(line) not in there:
                    there = below(roots)
                made_by |= {int(line)} & set(there)
                if len(made_by) == num_cpus:
                    break
            else:
                raise SystemExit(f"only {len(made_by)} workers of the node made batches")
            there = below(roots)
            used_nbytes = sum(map(pss_nbytes, there)) - idle_nbytes
            process.kill()
    print_line(
        {
            "num_processes": len(there) - len(idle),
            "memory_mib": used_nbytes / 2**20,
            "per_cpu_mib": used_nbytes / 2**20 / num_cpus,
        }
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cpus", type=int, default=16)
    flags = parser.parse_args()
    here, elsewhere, *_ = sorted(os.sched_getaffinity(0))
    with ray_of_two(here, elsewhere, flags.cpus) as (address, env, roots):
        run_once(here, address, env, roots, flags.cpus)


if __name__ == "__main__":
    main()
