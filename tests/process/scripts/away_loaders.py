"""One loader after another, each in a way of its own; prints digests and errors by scenario.

With HURRY=1 samples do not wait, and torch does not for long: the values are the same.
"""

import hashlib
import os
import pickle
import random
import time
import warnings
from pathlib import Path

import torch
from away_hosts import num_away, tell, wait_for_hosts
from torch.utils.data import DataLoader, Dataset, _utils

warnings.filterwarnings("ignore", message="This DataLoader will create")
NUM_HOSTS = 2
FILE_FD = 200
SAMPLE_S = 0.004
if os.environ.get("HURRY") == "1":
    SAMPLE_S = 0.0
    _utils.MP_STATUS_CHECK_INTERVAL = 0.5  # for which it joins a worker, in place of 5 s


class Base(Dataset):
    def __init__(self, size=96, sample_s=SAMPLE_S):
        self.size = size
        self.sample_s = sample_s

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        time.sleep(self.sample_s)
        return self.sample(index)

    def sample(self, index):
        return index, torch.rand(3), torch.rand(2000)


class Dicts(Base):
    def sample(self, index):
        return {"x": torch.rand(2), "name": f"sample {index}", "inner": {"n": random.random()}}


class Indices(Base):
    def sample(self, index):
        return index, torch.full((2000,), float(index))


class Strings(Base):
    def sample(self, index):
        return f"{index} {random.random()}"


class OwnError(Exception):
    """Takes more than a message."""

    def __init__(self, index, why):
        super().__init__(f"{index}: {why}")


class Fails(Base):
    def __init__(self, kind):
        super().__init__()
        self.kind = kind

    def sample(self, index):
        if index == 50:
            raise ValueError("not fifty") if self.kind == "ValueError" else OwnError(index, "bad")
        return index


class Slow(Base):
    def sample(self, index):
        time.sleep(1.5 if index == 60 else 0)
        return index


class File(Base):
    def sample(self, index):
        with Path(f"/proc/self/fd/{FILE_FD}").open():
            return index


def digest(batches):
    return hashlib.sha256(pickle.dumps([_plain(batch) for batch in batches])).hexdigest()


def _plain(value):
    if isinstance(value, torch.Tensor):
        return value.tolist()
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    return [_plain(inner) for inner in value] if isinstance(value, (list, tuple)) else value


def loader_of(dataset, **more):
    return DataLoader(dataset, 4, num_workers=3, **more)


def begin(loader):
    iterator = iter(loader)
    wait_for_hosts(iterator, NUM_HOSTS)
    return iterator


def say(name, *words):
    print(f"{name}: ", *words, sep="", flush=True)


def epoch(name, dataset, **more):
    """One whole epoch and its digest."""
    iterator = begin(loader_of(dataset, **more))
    batches = list(iterator)
    if not more.get("in_order", True):
        batches.sort(key=lambda batch: int(batch[0][0]))
    say(name, len(batches), " ", digest(batches))
    tell(f"away {name}: {num_away(iterator)}")


def persistent(name):
    loader = loader_of(Base(), persistent_workers=True, shuffle=True)
    first = begin(loader)
    for k in range(3):
        batches = list(loader) if k else list(first)
        say(name, len(batches), " ", digest(batches))
    tell(f"away {name}: {num_away(first)}")


def left_in_the_middle(name):
    loader = loader_of(Base(), shuffle=True)
    for _ in range(2):
        iterator = begin(loader)
        batches = []
        for batch in iterator:
            batches.append(batch)
            if len(batches) == 10:
                break
        say(name, digest(batches))
    say(name, digest(list(loader)))
    tell(f"away {name}: {num_away(iterator)}")


def two_in_turn(name):
    train, val = loader_of(Base(), shuffle=True), loader_of(Dicts(32))
    for _ in range(2):
        iterator = begin(train)
        batches = [batch for _ in range(12) for batch in [next(iterator)]]
        say(name, digest(list(begin(val))))
        say(name, digest(batches + list(iterator)))
    tell(f"away {name}: {num_away(iterator)}")


def dropped(name):
    loader = loader_of(Base(), shuffle=True)
    iterator = begin(loader)
    say(name, digest([next(iterator) for _ in range(9)]))
    tell(f"away {name}: {num_away(iterator)}")
    del iterator
    say(name, digest(list(loader)))


def fails(name, dataset, **more):
    iterator = begin(loader_of(dataset, **more))
    num = 0
    try:
        for _ in iterator:
            num += 1
        say(name, num * 2)
    except Exception as error:
        first, *rest = str(error).splitlines()
        say(name, f"{type(error).__name__} {first}")
        frames = [k for k, line in enumerate(rest) if f'"{__file__}"' in line]
        for line in rest[frames[0] :] if frames else rest:  # above are torch's, and ours
            say(name, line)
    tell(f"away {name}: {num_away(iterator)}")


def seeds(worker):
    torch.manual_seed(worker)


os.dup2(os.open(__file__, os.O_RDONLY), FILE_FD, inheritable=False)
torch.manual_seed(5)
persistent("persistent")
left_in_the_middle("left in the middle")
two_in_turn("two in turn")
dropped("dropped")
epoch("prefetch 1", Base(), prefetch_factor=1)
epoch("prefetch 8", Base(), prefetch_factor=8)
epoch("out of order", Indices(), in_order=False)
epoch("timeout kept", Base(), timeout=5)
epoch("dicts", Dicts())
epoch("tuples", Base(), shuffle=True)
epoch("strings", Strings())
epoch("worker_init_fn", Base(), worker_init_fn=seeds)
fails("timeout passed", Slow(), timeout=1)
fails("ValueError", Fails("ValueError"))
fails("its own error", Fails("own"))
fails("its file", File())
