"""Iterates over loaders as it is told on stdin, and tells when it has: one order a line.

open NAME KIND NUM_BATCHES   iter() of a new loader
hosts NAME N                 wait until N hosts have unpacked its job
fewer NAME N                 wait until no more than N hosts have
take NAME N                  N more batches; tells how many hosts made so far
longest NAME N               N more batches; tells the longest wait for one, in seconds
until_away NAME N            batches until hosts have made N in all
hang NAME                    the next sample on a host is not given before the file `go` is written
pace NAME N STEP_MS          batches, each with a step of that length, until there are N hosts
state NAME                   tells phase, batches that hosts made, chains lost, replayed, hedged
rest NAME                    all that is left; tells the digest of the whole epoch
drop NAME                    forget the iterator
Every order is answered by one line that begins with the order. With HURRY=1 no sample waits: its
values are the same.
"""

import contextlib
import hashlib
import os
import random
import sys
import time
from pathlib import Path

import numpy
import torch
from away_hosts import (
    capacity,
    is_on_a_host,
    num_away,
    tell,
    wait_for_batches,
    wait_for_fewer_hosts,
    wait_for_hosts,
)
from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info

BATCH = 4
WORKERS = 4
FOLDER = os.environ["HOME"]  # of this test
IS_HURRIED = os.environ.get("HURRY") == "1"
SAMPLE_S = 0.0 if IS_HURRIED else 0.008  # of waiting, as for storage
SLOW_SAMPLE_S = 0.0 if IS_HURRIED else 0.2
STEP_S = 0.5  # of a loop that waits for others, who begin late on a crowded machine


class Draws(Dataset):
    """Random numbers from all three global generators: portable."""

    def __init__(self, size):
        self.size = size

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        time.sleep(SAMPLE_S)
        drawn = torch.tensor([random.random(), numpy.random.random()])
        return index, torch.cat([drawn, torch.rand(3)])


class Own(Draws):
    """From a generator of its own: not portable, must be made again."""

    def __init__(self, size):
        super().__init__(size)
        self.generator = torch.Generator().manual_seed(7)

    def __getitem__(self, index):
        time.sleep(SAMPLE_S)
        return index, torch.rand(3, generator=self.generator)


class Nothing(Draws):
    """No random numbers, large samples: fans out."""

    def __getitem__(self, index):
        time.sleep(SAMPLE_S)
        return index, torch.full((3, 40_000), float(index))


class Waits(Draws):
    """No random numbers, nothing to copy or hash: a loop that has its batches takes no time."""

    def __getitem__(self, index):
        time.sleep(4 * SAMPLE_S)
        return index, torch.zeros(1)


class Slow(Draws):
    """Drawn, and long in the making."""

    def __getitem__(self, index):
        time.sleep(SLOW_SAMPLE_S)
        return super().__getitem__(index)


class SlowFree(Waits):
    def __getitem__(self, index):
        time.sleep(SLOW_SAMPLE_S)
        return super().__getitem__(index)


class Stream(IterableDataset):
    def __init__(self, size):
        self.size = size

    def __iter__(self):
        me = get_worker_info()
        for index in range(me.id, self.size, me.num_workers):
            time.sleep(SAMPLE_S)
            yield index, torch.rand(3)


def hang_if_ordered():
    """Once, in whichever process of a host's comes here first."""
    if is_on_a_host():
        with contextlib.suppress(FileNotFoundError):
            Path(FOLDER, "hang").rename(Path(FOLDER, "hung"))
            Path(FOLDER, "go").read_bytes()


class Hangs(Draws):
    def __getitem__(self, index):
        hang_if_ordered()
        return super().__getitem__(index)


class HangsFree(Nothing):
    def __getitem__(self, index):
        hang_if_ordered()
        return super().__getitem__(index)


class DiesOnHosts(Draws):
    """Its code ends every process that is not on the trainer's machine."""

    def __getitem__(self, index):
        if is_on_a_host() and index > BATCH * WORKERS:
            os._exit(9)
        return super().__getitem__(index)


class DiesOnHostsFree(Nothing):
    def __getitem__(self, index):
        if is_on_a_host():
            os._exit(9)
        return super().__getitem__(index)


KINDS = {
    "draws": Draws,
    "own": Own,
    "nothing": Nothing,
    "iterable": Stream,
    "waits": Waits,
    "slow": Slow,
    "slow-free": SlowFree,
    "hangs": Hangs,
    "hangs-free": HangsFree,
    "dies": DiesOnHosts,
    "dies-free": DiesOnHostsFree,
}


class Epoch:
    def __init__(self, kind, num_batches):
        torch.manual_seed(len(kind))
        is_map = kind != "iterable"
        more = {"shuffle": True} if is_map else {}
        dataset = KINDS[kind](num_batches * BATCH)
        self.iterator = iter(DataLoader(dataset, BATCH, num_workers=WORKERS, **more))
        self.digest = hashlib.sha256()
        self.num = 0

    def take(self, num):
        for _ in range(num):
            self.add(next(self.iterator))

    def longest(self, num):
        longest_s = 0.0
        for _ in range(num):
            began_s = time.monotonic()
            self.take(1)
            longest_s = max(longest_s, time.monotonic() - began_s)
        return longest_s

    def add(self, batch):
        index, values = batch
        self.digest.update(index.numpy().tobytes() + values.numpy().tobytes())
        self.num += 1

    def until_away(self, num):
        while num_away(self.iterator) is not None and num_away(self.iterator) < num:
            self.take(1)
            wait_for_batches(self.iterator, num, STEP_S)

    def pace(self, num_hosts, step_ms):
        while (places := capacity(self.iterator)) is not None and places != num_hosts:
            self.take(1)
            time.sleep(step_ms / 1000)

    def rest(self):
        for batch in self.iterator:
            self.add(batch)
        return f"{self.num} {self.digest.hexdigest()}"

    def state(self):
        state = self.iterator._driver.state
        numbers = num_away(self.iterator), state.num_lost, state.num_replayed, state.num_hedged
        return " ".join(map(str, (state.phase.name, *numbers)))

    def hang(self):
        os.mkfifo(f"{FOLDER}/go")
        Path(FOLDER, "hang").touch()


epochs = {}
for line in sys.stdin:
    order, name, *rest = line.split()
    numbers = [int(word) for word in rest if word.isdecimal()]
    said = ""
    if order == "open":
        epochs[name] = Epoch(rest[0], *numbers)
    elif order == "hosts":
        said = wait_for_hosts(epochs[name].iterator, *numbers)
    elif order == "fewer":
        said = wait_for_fewer_hosts(epochs[name].iterator, *numbers)
    elif order == "drop":
        del epochs[name]
    else:
        try:
            said = getattr(epochs[name], order)(*numbers) or ""
        except RuntimeError as error:
            said = f"{type(error).__name__}: {str(error).splitlines()[0]}"
    tell(f"{order} {name} {said}")
