"""How throughput grows with workers on other machines, while nothing but their number limits it.

Emulated hosts (emulated_host.py) answer each task after TASK_S of sleep with a batch of 1 MB, in real
messages over TCP. Prints, for each number of hosts, batches_per_s, how much of linear that is (from
what one host gives) and the CPU milliseconds of the training process for each batch.
Not a plain script: plain torch has nothing like it; there is one side only.
"""

import argparse
import time

import torch
from emulated import batches_from_hosts
from one_side import print_line

NUMS_HOSTS = (1, 4, 16, 64)
BATCH_NBYTES = 1 << 20
TASK_S = 0.1


def measure(num_hosts: int, batch: torch.Tensor, seconds: float) -> tuple[float, float]:
    """Batches a second, and milliseconds of the training process's CPU for each."""
    with batches_from_hosts(num_hosts, batch, TASK_S) as (iterator, _):
        for _ in range(4 * num_hosts):
            next(iterator)
        cpu_s, start_s, num = time.process_time(), time.perf_counter(), 0
        while time.perf_counter() - start_s < seconds:
            next(iterator)
            num += 1
        wall_s = time.perf_counter() - start_s
        return num / wall_s, (time.process_time() - cpu_s) / num * 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=3.0, help="counted, of each number")
    flags = parser.parse_args()
    batch, line = torch.rand(BATCH_NBYTES // 4), {}
    for num_hosts in NUMS_HOSTS:
        rate, cpu_ms = measure(num_hosts, batch, flags.seconds)
        line[f"batches_per_s_{num_hosts}"] = rate
        line[f"of_linear_{num_hosts}"] = rate / num_hosts / line["batches_per_s_1"]
        line[f"trainer_cpu_ms_{num_hosts}"] = cpu_ms
    print_line(line)


if __name__ == "__main__":
    main()
