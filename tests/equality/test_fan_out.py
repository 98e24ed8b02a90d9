"""Batches that draw nothing may be made by any slot; that is a matter of speed, never of values.

Each dataset here tempts: it looks as if it drew nothing, for a while or to a certain look, and
then depends on its own past. Samples take long enough for evidence to gather and work to spread.
"""

import ctypes
import decimal
import functools
import itertools
import os
import random
import threading
import time
from functools import partial

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, get_worker_info

from stoker.config import Settings
from tests.equality.cases import TRAINER, step
from tests.equality.deaths import Deaths
from tests.equality.sides import both

WORK_S = 0.008  # a sample takes as long as a small read over a network; torch's side need not wait
BATCH_SIZE = 4
LATE = 88  # the sample from which on late ones change: after 22 batches, or 0.7 s of work
VERY_LATE = 280  # after more than 2 s of work: spread by then on the most crowded machine
SPREAD = Settings(workers=3, quiet=True)
RNG = np.random.default_rng(1)
PYTHON_RNG = random.Random(1)
TORCH_RNG = torch.Generator().manual_seed(1)
COUNT = itertools.count()
HISTORY: list[int] = []


class Base(Dataset):
    """A function of the index, after some waiting."""

    num_samples = 120
    work_s = 0.0

    def __len__(self):
        return self.num_samples

    def __getitem__(self, index):
        time.sleep(self.work_s)
        return index, self.more(index)

    def more(self, index):
        return 0


class LateDraws(Base):
    """Nothing is drawn in the first batches."""

    late = LATE

    def more(self, index):
        return random.random() + torch.rand(()).item() if index >= self.late else 0.5


class RareDraws(Base):
    def more(self, index):
        return np.random.rand() if index % 23 == 22 else 0.5


class Counts(Base):
    def __init__(self):
        self.seen = 0

    def more(self, index):
        self.seen += 1
        return self.seen


class CountsLate(Counts):
    def more(self, index):
        return super().more(index) if index >= LATE else 0


class CountsDeep(Base):
    def __init__(self):
        self.parts = [{"history": []}]

    def more(self, index):
        self.parts[0]["history"].append(index)
        return len(self.parts[0]["history"])


class ClassCounts(Base):
    seen = 0

    def more(self, index):
        ClassCounts.seen += 1
        return self.seen


class OwnGenerator(Base):
    def __init__(self):
        self.rng = np.random.default_rng(3)

    def more(self, index):
        return self.rng.random()


class OwnTorchGenerator(Base):
    def __init__(self):
        self.rng = torch.Generator().manual_seed(3)

    def more(self, index):
        return torch.rand((), generator=self.rng)


class GlobalNumpy(Base):
    def more(self, index):
        return RNG.random()


class GlobalRandom(Base):
    def more(self, index):
        return PYTHON_RNG.random()


class GlobalTorch(Base):
    def more(self, index):
        return torch.rand((), generator=TORCH_RNG)


class GlobalCount(Base):
    def more(self, index):
        return next(COUNT)


class GlobalList(Base):
    def more(self, index):
        HISTORY.append(index)
        return sum(HISTORY)


class GlobalName(Base):
    def more(self, index):
        global LAST
        LAST += index
        return LAST


LAST = 0


class Default(Base):
    def more(self, index, seen=[]):  # noqa: B006  # the trap of the textbook
        seen.append(index)
        return len(seen)


class FunctionAttribute(Base):
    def more(self, index):
        function_with_memory.seen += 1
        return function_with_memory.seen


def function_with_memory():
    """Holds an attribute."""


function_with_memory.seen = 0


class Closure(Base):
    def __init__(self):
        seen = 0

        def count():
            nonlocal seen
            seen += 1
            return seen

        self.count = count

    def more(self, index):
        return self.count()


class Generated(Base):
    def __init__(self):
        self.numbers = (k * k for k in itertools.count())

    def more(self, index):
        return next(self.numbers)


class Iterated(Base):
    def __init__(self):
        self.numbers = itertools.cycle(range(7))

    def more(self, index):
        return next(self.numbers)


class ThreadLocal(Base):
    local = threading.local()

    def more(self, index):
        self.local.seen = getattr(self.local, "seen", 0) + 1
        return self.local.seen


class Cached(Base):
    """A cache that remembers the first answer, which depends on what came before."""

    def __init__(self):
        self.seen = 0

    def more(self, index):
        return self.first_answer(index % 5)

    @functools.lru_cache  # noqa: B019  # one dataset, one test
    def first_answer(self, key):
        return len(cache_info_keys) + key + self.bump()

    def bump(self):
        self.seen += 1
        return self.seen


cache_info_keys: list[int] = []


class Previous(Base):
    """Mixes with the sample of before, as mosaic buffers do."""

    buffer = None

    def more(self, index):
        before, self.buffer = self.buffer, torch.full((2,), float(index))
        return self.buffer if before is None else before


class TensorState(Base):
    def __init__(self):
        self.mean = torch.zeros(2)

    def more(self, index):
        self.mean.mul_(0.9).add_(index * 0.1)
        return self.mean.clone()


class SharedState(Base):
    """State in shared memory: every worker changes the same one. Only one chain is in order."""

    def __init__(self):
        self.mean = torch.zeros(2).share_memory_()

    def more(self, index):
        self.mean.mul_(0.9).add_(index * 0.1)
        return self.mean.clone()


class FileOffset(Base):
    """State in the kernel."""

    def __init__(self):
        self.file = os.memfd_create("offset")
        os.write(self.file, bytes(range(250)))
        os.lseek(self.file, 0, os.SEEK_SET)

    def more(self, index):
        return os.read(self.file, 1)[0]

    def __del__(self):
        os.close(self.file)


class Environment(Base):
    def more(self, index):
        os.environ["STATE_OF_THE_DATASET"] = now = os.environ.get("STATE_OF_THE_DATASET", "") + "x"
        return len(now)


class WorkerInfo(Base):
    """Reads what identifies its chain, and draws nothing."""

    def more(self, index):
        info = get_worker_info()
        return info.id, info.num_workers, info.seed, torch.initial_seed()


class SeededByChain(Base):
    def more(self, index):
        return np.random.default_rng([torch.initial_seed() % 2**32, index]).random()


class ReadsState(Base):
    """Looks at the generators without moving them."""

    def more(self, index):
        return hash(random.getstate()) % 2**31, torch.get_rng_state().sum()


class Reseeds(Base):
    """Deterministic augmentation as many write it."""

    def more(self, index):
        random.seed(index)
        torch.manual_seed(index)
        return random.random() + torch.rand(()).item()


class RestoresState(Base):
    """Draws, and puts the generator back."""

    def more(self, index):
        before = torch.get_rng_state()
        value = torch.rand(())
        torch.set_rng_state(before)
        return value


class ForkRng(Base):
    def more(self, index):
        with torch.random.fork_rng():
            return torch.rand(())


class Pure(Base):
    """Draws nothing and remembers nothing."""


class HiddenInC(Base):
    """A generator inside a C library, which no Python object shows."""

    def more(self, index):
        return ctypes.CDLL(None).rand()


class HiddenInStandardLibrary(Base):
    def more(self, index):
        decimal.getcontext().prec += 1
        return decimal.getcontext().prec


class HiddenInTorch(Base):
    def more(self, index):
        torch.set_default_dtype([torch.float32, torch.float64][(index // 7) % 2])
        return torch.ones(1) / 3


class PartlyCopied(Base):
    """The state of an instance whose class says how to copy it, and copies only a part."""

    class Partly:
        def __init__(self):
            self.seen = 0

        def __reduce__(self):
            return type(self), ()

    def __init__(self):
        self.partly = self.Partly()

    def more(self, index):
        self.partly.seen += 1
        return self.partly.seen


class Property(Base):
    _seen = 0

    @property
    def seen(self):
        self._seen += 1
        return self._seen

    def more(self, index):
        return self.seen


class OfAnotherModule(Base):
    def more(self, index):
        TRAINER["epoch"] += 1
        return TRAINER["epoch"]


class ReadsGlobals(Base):
    """Reads what stays as it was."""

    def more(self, index):
        return CONSTANT[index % 2] + np.sin(index)


CONSTANT = (1.5, 2.5)


class Initialised(Base):
    """worker_init_fn made this copy differ from the others."""

    scale = 0

    def more(self, index):
        return self.scale * index


def init(worker_id):
    dataset = get_worker_info().dataset
    if isinstance(dataset, Initialised):
        dataset.scale = worker_id + 2


KINDS = [kind for kind in Base.__subclasses__() if kind is not SharedState] + [CountsLate]


def check(make_dataset, run, *, chains=1, settings=SPREAD, plain_dataset=None, **kwargs):
    def make(num_workers, make_dataset=make_dataset, work_s=WORK_S):
        dataset = make_dataset()
        dataset.work_s = work_s
        return DataLoader(dataset, BATCH_SIZE, num_workers=num_workers, **kwargs)

    plain = partial(make, make_dataset=plain_dataset or make_dataset, work_s=0.0)
    both(make, run, workers=chains, settings=settings, plain_loader=plain)


def one_epoch(loader):
    for batch in loader:
        yield batch
        step()


@pytest.mark.few(8)
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_one_chain_spread_over_three_slots_equals_torch(kind):
    check(kind, one_epoch)


TWO_CHAINS = [
    Pure, LateDraws, RareDraws, Counts, CountsLate, OwnGenerator, ClassCounts, GlobalNumpy,
    WorkerInfo, SeededByChain, ReadsState, Reseeds, RestoresState, Previous, Initialised,
]  # fmt: skip


@pytest.mark.few(4)
@pytest.mark.parametrize("kind", TWO_CHAINS, ids=lambda kind: kind.__name__)
def test_two_chains_spread_over_three_slots_equal_torch(kind):
    check(kind, one_epoch, chains=2, shuffle=True, worker_init_fn=init)


def test_chains_of_every_slot_equal_torch():
    settings = Settings(chains="auto", workers=4, quiet=True)
    plain = partial(DataLoader, LateDraws(), BATCH_SIZE, shuffle=True)
    both(
        lambda w: plain(num_workers=w), one_epoch, workers=1, settings=settings,
        plain_loader=lambda _: plain(num_workers=4),
    )  # fmt: skip


def test_state_in_shared_memory_equals_torch():
    check(SharedState, one_epoch)


class LaterEpochs(Base):
    """Draws in its third epoch only."""

    num_samples = 100

    def __init__(self):
        self.draws = torch.zeros(1).share_memory_()

    def more(self, index):
        return random.random() if self.draws else 0.5


def test_persistent_chains_that_start_to_draw_in_a_later_epoch():
    def run(loader):
        for epoch in range(4):
            loader.dataset.draws.fill_(epoch == 2)
            yield from loader

    check(LaterEpochs, run, persistent_workers=True)


@pytest.mark.parametrize("persistent", [False, True])
def test_a_break_while_work_is_spread(persistent):
    def run(loader):
        for epoch in range(3):
            for k, batch in enumerate(loader):
                yield batch
                if epoch < 2 and k == 25:
                    break

    check(Pure, run, persistent_workers=persistent)


class Failing(Base):
    bad = (95, 96, 111)

    def more(self, index):
        if index in self.bad:
            raise ValueError(index)
        return super().more(index)


class FailingPure(Failing, Pure):
    pass


class FailingLateDraws(Failing, LateDraws):
    pass


class FailingCounts(Failing, Counts):
    pass


@pytest.mark.parametrize("kind", [FailingPure, FailingLateDraws, FailingCounts])
def test_errors_while_work_is_spread(kind):
    def run(loader):
        iterator = iter(loader)
        for _ in range(len(loader)):
            try:
                yield next(iterator)
            except ValueError as error:
                yield str(error).splitlines()[::100]
        iterator._shutdown_workers()

    check(kind, run)


class Mortal(Base):
    def __init__(self, deaths):
        self.deaths = deaths

    def more(self, index):
        self.deaths.maybe(index)
        return index * 2


def test_kills_while_work_is_spread(tmp_path):
    deaths = Deaths(tmp_path, {90: 1, 101: 2, 110: 1})
    check(lambda: Mortal(deaths), one_epoch, plain_dataset=lambda: Mortal(Deaths(tmp_path, {})))
    assert deaths.count() == 4


class VeryLateDraws(LateDraws):
    late = VERY_LATE


class Traced(Base):
    """Leaves an empty file for each process: a trace outside of memory."""

    num_samples = VERY_LATE + 20

    def __init__(self, folder, inner):
        self.folder, self.inner = folder, inner

    def more(self, index):
        (self.folder / str(os.getpid())).touch()
        return self.inner.more(index)


@pytest.mark.parametrize(
    "kind", [Pure, ReadsGlobals, VeryLateDraws], ids=lambda kind: kind.__name__
)
def test_work_that_draws_nothing_is_indeed_spread(tmp_path, kind):
    """Else the tests above test nothing."""

    def make_dataset():
        for file in tmp_path.iterdir():
            file.unlink()
        return Traced(tmp_path, kind())

    check(make_dataset, one_epoch)
    assert len(list(tmp_path.iterdir())) > 1
