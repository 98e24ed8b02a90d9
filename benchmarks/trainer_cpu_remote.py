"""What the training process pays for batches that come from other machines, beside torch's loader.

Batches of 38.5 MB as handover.py's. In turn: torch's own loader with as many workers as cores, and
emulated hosts (emulated_host.py) over TCP loopback. Prints CPU seconds of the training process for
each GB of both, and of stoker's receiver, which runs beside it, for the second.
Not a plain script: both sides run in this process, torch's before stoker's patches.
"""

import argparse
import statistics
import time

import torch
from emulated import batches_from_hosts
from handover import BATCH_SIZE, make_loader
from one_side import GB, num_usable_cores, print_line
from processes import cpu_s_of

NUM_HOSTS = 2


def cpu_s_per_gb(iterator, seconds: float) -> float:
    """Of this process, over batches that it gets within so many seconds."""
    for _ in range(8):
        batch = next(iterator)
    cpu_s, start_s, num = time.process_time(), time.perf_counter(), 0
    while time.perf_counter() - start_s < seconds:
        batch = next(iterator)
        num += 1
    return (time.process_time() - cpu_s) / (num * batch.nbytes / GB)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=3.0, help="of each measurement")
    parser.add_argument("--rounds", type=int, default=3)
    flags = parser.parse_args()
    torchs = iter(make_loader(num_usable_cores()))
    batch = torch.rand(BATCH_SIZE, 3, 224, 224)
    pairs, receiver_cpu_s = [], 0.0
    with batches_from_hosts(NUM_HOSTS, batch) as (iterator, fleet):
        before_s = cpu_s_of(fleet._process.pid)
        for _ in range(flags.rounds):
            theirs = cpu_s_per_gb(torchs, flags.seconds)
            pairs.append((cpu_s_per_gb(iterator, flags.seconds), theirs))
        receiver_cpu_s = cpu_s_of(fleet._process.pid) - before_s
        received_gb = iterator._driver.stats.raw_nbytes / GB
    print_line(
        {
            "remote_cpu_s_per_gb": statistics.median(ours for ours, _ in pairs),
            "torch_cpu_s_per_gb": statistics.median(theirs for _, theirs in pairs),
            "of_torch": statistics.median(ours / theirs for ours, theirs in pairs),
            "receiver_cpu_s_per_gb": receiver_cpu_s / received_gb,
        }
    )


if __name__ == "__main__":
    main()
