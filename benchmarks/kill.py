"""What is left of throughput while one of four workers is killed every 2 s.

Four hosts of stoker as processes, each the CPU of a machine: a task holds its host for TASK_S, asleep,
so that two cores are enough for four (the hosts themselves, what they send and how they start again
are real). Every KILL_EVERY_S one of those that serve, drawn from a seeded generator, gets a kill -9.

What the survivors could give is measured in the same run: the undisturbed rate before the first kill
times the share of worker-time that was alive. A killed worker counts as away from its kill until the
process that replaces it has unpacked the job and could make a batch; at the end of the count, if it has
not. `of_survivors` is the rate over that. So it says what a loss costs beyond the worker itself: work
that was lost with it, batches that wait for one that is made again, replacements that get nothing to
do. `away_s` is the time to a replacement, `of_undisturbed` the rate with nothing forgiven,
`after_of_undisturbed` the rate when all are back.
Not a plain script: plain torch ends when a worker is killed; there is one side only.
"""

import argparse
import fcntl
import os
import random
import signal
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import torch
from one_side import print_line
from processes import children, parent
from torch.utils.data import DataLoader, Dataset

from stoker.clock import Deadline
from stoker.config import Settings
from stoker.intercept import patches, run
from stoker.loaders.driver import helpers
from stoker.remote.net.auth import versions
from stoker.remote.net.control import Capacity
from stoker.remote.trainer.fleet import Fleet

NUM_HOSTS = 4
TASK_S = 0.1
BATCH_NBYTES = 1 << 20
KILL_EVERY_S = 2.0
PATIENCE_S = 60.0
BACK_S = 10.0  # until the last one killed is back at work
NUM_LOCKS = 1024  # files; two hosts that share one would only slow the count with kills


class Made(NamedTuple):
    """A batch, and the host that made it."""

    batch: torch.Tensor
    host: int


class Asleep(Dataset):
    """A task takes its host, all of it, for TASK_S, however many workers the host runs."""

    def __init__(self, folder: str, draws: bool) -> None:
        self.folder, self.draws = folder, draws
        self.batch = torch.rand(BATCH_NBYTES // 4)
        for number in range(NUM_LOCKS):
            Path(folder, str(number)).touch()

    def __len__(self) -> int:
        return 1 << 40

    def __getitem__(self, index: int) -> Made:
        if self.draws:
            random.random()
        host = parent(os.getppid())  # worker, the job's process, host
        fd = os.open(f"{self.folder}/{host % NUM_LOCKS}", os.O_RDONLY)
        # What only emulates shall not be seen: after fcntl.flock, the task would be one that leaves a
        # trace, and a job with ctypes among its names is not offered to other machines.
        sys.modules["ctypes"].CDLL(None).flock(fd, fcntl.LOCK_EX)
        time.sleep(TASK_S)
        made = Made(self.batch.clone(), host)
        os.close(fd)
        return made


class Count(NamedTuple):
    batches_per_s: float
    alive_frac: float
    away_s: list[float]


class Loop:
    """Counts batches, and kills."""

    def __init__(self, iterator: object, receiver: int, seed: int) -> None:
        self.iterator, self.receiver = iterator, receiver
        self.draw = random.Random(seed)
        self.ready_s: list[float] = []  # when a host could make batches
        self.away = iterator._driver._helpers.away
        self.take_in, self.away.take_in = self.away.take_in, self._take_in

    def _take_in(self, news: object) -> None:
        if isinstance(news, Capacity) and sum(news.cpus.values()) > self.away.capacity:
            self.ready_s.append(time.monotonic())
        self.take_in(news)

    def warm(self, seconds: float) -> int:
        """Until the last batches came from all hosts and from nowhere else, or time is over.

        Returns how many hosts made them.
        """
        end_s = time.monotonic() + seconds
        while True:
            seen = {next(self.iterator).host for _ in range(8 * NUM_HOSTS)}
            if sorted(seen) == children(self.receiver) or time.monotonic() > end_s:
                return len(seen)

    def count(self, seconds: float, kills: bool) -> Count:
        began_s, num = time.monotonic(), 0
        next_kill_s = began_s + KILL_EVERY_S / 2 if kills else float("inf")
        killed_s: list[float] = []
        self.ready_s.clear()
        while (now_s := time.monotonic()) - began_s < seconds:
            if now_s >= next_kill_s:
                next_kill_s += KILL_EVERY_S
                killed_s += [now_s] * self._kill()
            next(self.iterator)
            num += 1
        ended_s = time.monotonic()
        back_s = self.ready_s + [ended_s] * (len(killed_s) - len(self.ready_s))
        away_s = [to_s - from_s for from_s, to_s in zip(killed_s, back_s, strict=True)]
        wall_s = ended_s - began_s
        return Count(num / wall_s, 1 - sum(away_s) / NUM_HOSTS / wall_s, away_s)

    def _kill(self) -> bool:
        """Kill a host that runs a worker; False if there is none."""
        hosts = children(self.receiver)
        serving = [pid for pid in hosts if any(children(job) for job in children(pid))]
        if serving:
            os.kill(self.draw.choice(serving), signal.SIGKILL)
        return bool(serving)


def measure(flags: argparse.Namespace, folder: str) -> dict[str, float]:
    settings = Settings(cluster=f"processes:{NUM_HOSTS}", quiet=True)
    more = {"versions": versions(), "script": None}
    fleet = Fleet(settings._asdict() | more, lambda text: None)
    run.fleet = lambda: fleet
    helpers.local_slots = lambda num_cores, busy_cores: 0  # the four make all batches
    patches.install(Settings(quiet=True))
    try:
        fleet.wait(lambda: fleet.num_hosts == NUM_HOSTS, Deadline(PATIENCE_S))
        dataset = Asleep(folder, flags.draws)
        iterator = iter(DataLoader(dataset, batch_size=None, num_workers=flags.num_workers))
        loop = Loop(iterator, fleet._process.pid, flags.seed)
        if loop.warm(PATIENCE_S) < NUM_HOSTS:
            raise SystemExit("the hosts do not make all batches")
        before = loop.count(flags.seconds / 2, kills=False)
        disturbed = loop.count(flags.seconds, kills=True)
        num_after = loop.warm(BACK_S)
        after = loop.count(flags.seconds / 2, kills=False)
        del loop, iterator
    finally:
        patches.restore()
        fleet.close()
    undisturbed = before.batches_per_s
    return {
        "batches_per_s": disturbed.batches_per_s,
        "undisturbed_batches_per_s": undisturbed,
        "of_survivors": disturbed.batches_per_s / (undisturbed * disturbed.alive_frac),
        "of_undisturbed": disturbed.batches_per_s / undisturbed,
        "after_of_undisturbed": after.batches_per_s / undisturbed,
        "num_hosts_after": num_after,
        "alive_frac": disturbed.alive_frac,
        "away_s": statistics.median(disturbed.away_s),
        "num_kills": len(disturbed.away_s),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=20.0, help="with kills")
    parser.add_argument("--draws", action="store_true", help="the dataset draws random numbers")
    parser.add_argument("--num-workers", type=int, default=NUM_HOSTS, metavar="W")
    parser.add_argument("--seed", type=int, default=0, help="of who is killed")
    flags = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        print_line(measure(flags, folder))


if __name__ == "__main__":
    main()
