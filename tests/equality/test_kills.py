"""A worker that dies at any point changes nothing: its chain is continued or replayed to the bit.

Deaths are scheduled (deaths.py), or the trainer kills a worker after a batch of its choice.
"""

import itertools
import os
import random
import select
import signal
import time
from functools import partial

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, get_worker_info

from stoker.config import Settings
from stoker.loaders import multiprocess as iterator
from stoker.loaders.driver import workers
from stoker.reports.digest import batch_sha256
from stoker.scheduler import history
from stoker.scheduler.decider import Stream
from stoker.scheduler.events import Lost
from stoker.scheduler.state import Limits
from stoker.wire.marks import NOTHING
from tests.equality.cases import TRAINER, Case, Samples, make_loader, step, three_epochs
from tests.equality.deaths import Deaths
from tests.equality.sides import QUIET, both, installed
from tests.slots import C

GLOBAL_RNG = np.random.default_rng(17)
COUNTER = itertools.count()
KILLED: set[int] = set()


class ClassState(Samples):
    """State that no pickle of the dataset shows."""

    counted = 0

    def __getitem__(self, index):
        type(self).counted += 1
        return super().__getitem__(index), self.counted


class GlobalGenerator(Samples):
    def __getitem__(self, index):
        return super().__getitem__(index), GLOBAL_RNG.random()


class GlobalCounter(Samples):
    def __getitem__(self, index):
        return super().__getitem__(index), next(COUNTER)


class Counter(Samples):
    """State in the dataset itself."""

    def __init__(self, num_samples, draws):
        super().__init__(num_samples, draws)
        self.seen = {"count": 0}

    def __getitem__(self, index):
        self.seen["count"] += 1
        return super().__getitem__(index), self.seen["count"]


class OnlyGlobal(Samples):
    """Draws from the three global generators alone: a portable dataset."""

    def __getitem__(self, index):
        noise = random.random() + np.random.rand() + torch.rand(()).item()
        return super().__getitem__(index), noise


KINDS = {
    "portable": partial(OnlyGlobal, draws="none"),
    "draws nothing": partial(Samples, draws="none"),
    "own generator": partial(Samples, draws="all"),
    "counter": partial(Counter, draws="none"),
    "counter and draws": partial(Counter, draws="random"),
    "class attribute": partial(ClassState, draws="none"),
    "global generator": partial(GlobalGenerator, draws="none"),
    "global counter": partial(GlobalCounter, draws="torch"),
}


def mortal(kind, deaths):
    """A dataset of this kind that dies by the schedule; before a sample, when its state is half new."""
    TRAINER["epoch"] = 0  # what another test has left there
    dataset = KINDS[kind](48)

    class Mortal(type(dataset)):
        def __getitem__(self, index):
            sample = super().__getitem__(index)
            deaths.maybe(index)
            return sample

    dataset.__class__ = Mortal
    return dataset


def check(kind, deaths, *, workers=2, persistent=False, settings=QUIET, epochs=2, prefetch=2):
    def make(num_workers, deaths=deaths):
        return DataLoader(
            mortal(kind, deaths), 3, shuffle=True, num_workers=num_workers,
            persistent_workers=persistent, prefetch_factor=prefetch,
        )  # fmt: skip

    def run(loader):
        for _ in range(epochs):
            for batch in loader:
                yield batch
                step()

    immortal = partial(make, deaths=Deaths(deaths.folder, {}))
    case = kind, workers, settings.chains, persistent, epochs, prefetch
    both(make, run, workers=workers, settings=settings, plain_loader=immortal, once=case)
    assert deaths.count() == sum(deaths.schedule.values()), "not everyone died: tests nothing"


@pytest.mark.cover(1)
@pytest.mark.away_by_default
@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_a_worker_that_is_killed_once_changes_nothing(tmp_path, kind, persistent):
    check(kind, Deaths(tmp_path, {7: 1}), persistent=persistent)


class SlowFirstWorker(Samples):
    """So that the loop waits for worker 0 while all that is to be heard comes from worker 1."""

    def __getitem__(self, index):
        if get_worker_info().id == 0:
            time.sleep(0.05)
        return super().__getitem__(index)


@pytest.mark.here  # elsewhere a chain's first worker here is started, too
def test_a_death_that_is_told_twice_costs_one_worker():
    """By its socket's end, behind a batch that nobody has read, and by the template."""
    with installed(QUIET):
        iterator = iter(DataLoader(SlowFirstWorker(48, draws="none"), 3, num_workers=2))
        next(iterator), next(iterator)
        answer = select.poll()
        answer.register(iterator._driver._lines.get(C[1]).channel, select.POLLIN)
        assert answer.poll(30_000)
        victim = iterator._workers[1]
        os.kill(victim.pid, signal.SIGKILL)
        victim.join(30)
        assert len(list(iterator)) == 14
    assert iterator._driver.state.num_lost == 1
    assert iterator._driver.stats.num_started == 3


@pytest.mark.few(4)
@pytest.mark.parametrize("kind", KINDS)
def test_many_deaths_change_nothing(tmp_path, kind):
    check(kind, Deaths(tmp_path, {0: 2, 5: 1, 13: 2, 20: 1, 31: 1, 47: 2}), workers=3)


@pytest.mark.cover(1)
@pytest.mark.parametrize("kind", ["portable", "own generator"])
@pytest.mark.parametrize("chains", ["script", "7"])
@pytest.mark.parametrize("workers", [1, 5])
def test_deaths_of_few_and_many_chains_change_nothing(tmp_path, kind, chains, workers):
    settings = Settings(chains=chains, quiet=True)
    check(kind, Deaths(tmp_path, {3: 1, 30: 2}), workers=workers, settings=settings)


@pytest.mark.parametrize(
    "number",
    [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, None],
    ids=lambda number: getattr(number, "name", "os._exit"),
)
def test_every_way_to_die_is_replaced(tmp_path, number):
    check("own generator", Deaths(tmp_path, {9: 1}, number))


@pytest.mark.cover(1)
@pytest.mark.parametrize("prefetch", [1, 4])
@pytest.mark.parametrize("kind", ["portable", "own generator"])
def test_deaths_with_little_and_much_in_flight(tmp_path, kind, prefetch):
    check(kind, Deaths(tmp_path, {2: 2, 25: 1}), prefetch=prefetch)


@pytest.mark.parametrize("kind", ["portable", "own generator"])
def test_large_batches_survive_deaths(tmp_path, kind):
    """Half-written memory of the dead is never delivered, and what was delivered stays."""

    class Large(Dataset):
        def __init__(self, deaths):
            self.inner = mortal(kind, deaths)

        def __len__(self):
            return len(self.inner)

        def __getitem__(self, index):
            sample = int(batch_sha256(self.inner[index])[:6], 16)
            return torch.full((3, 96, 96), float(sample))

    deaths = Deaths(tmp_path, {4: 1, 21: 2})

    def make(num_workers, deaths=deaths):
        return DataLoader(Large(deaths), 4, shuffle=True, num_workers=num_workers)

    def run(loader):
        kept = [batch for _ in range(2) for batch in loader]
        yield from kept
        yield kept

    both(make, run, plain_loader=partial(make, deaths=Deaths(tmp_path, {})))
    assert deaths.count() == 3


def kill(worker):
    """A batch may be there before its worker's death is noticed: then the pid is still the one that
    was killed before, and its process is gone (torch's would be a zombie until then)."""
    try:
        os.kill(worker.pid, signal.SIGKILL)
    except ProcessLookupError:
        assert worker.pid in KILLED
    KILLED.add(worker.pid)


@pytest.mark.here  # a pid of another machine is nothing to kill
@pytest.mark.cover(1)
@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("draws", ["some", "all"])
@pytest.mark.parametrize("victims", [[0], [1, 2], [0, 1, 2]], ids=str)
def test_workers_that_the_trainer_kills_are_replaced(victims, draws, persistent):
    """`it._workers[w].pid` is the process to kill, also for the replacement."""
    case = Case(draws=draws, persistent=persistent, workers=3, prefetch=1)

    def run(loader, kills):
        for epoch in range(2):
            iterator = iter(loader)
            for k, batch in enumerate(iterator):
                yield batch
                step()
                if kills and k in (0, 4 + epoch):
                    for w in victims:
                        kill(iterator._workers[w])

    make = partial(make_loader, case)
    both(make, partial(run, kills=True), plain_run=partial(run, kills=False), workers=3)


def test_persistent_workers_killed_between_epochs_are_replaced():
    case = Case(draws="all", persistent=True)

    def run(loader, kills):
        for _ in range(3):
            yield from loader
            for worker in loader._iterator._workers if kills else ():
                kill(worker)

    make = partial(make_loader, case)
    both(make, partial(run, kills=True), plain_run=partial(run, kills=False))


def test_idle_workers_killed_at_the_end_are_no_error():
    with installed():
        iterator = iter(make_loader(Case(), 2))
        batches = list(iterator)
        for worker in iterator._workers:
            if worker.is_alive():
                kill(worker)
        del iterator
        assert len(batches) == 14


def test_a_stopped_worker_that_is_continued_changes_nothing():
    def run(loader, stops):
        iterator = iter(loader)
        yield from (next(iterator), next(iterator))
        pid = iterator._workers[1].pid
        if stops:
            os.kill(pid, signal.SIGSTOP)
        yield next(iterator)  # of the other worker
        if stops:
            os.kill(pid, signal.SIGCONT)
        yield from iterator

    make = partial(make_loader, Case(draws="all", prefetch=4))
    both(make, partial(run, stops=True), plain_run=partial(run, stops=False))


@pytest.mark.parametrize("kind", ["portable", "own generator"])
def test_the_third_death_on_a_task_is_told_as_torch_tells_it(tmp_path, kind):
    deaths = Deaths(tmp_path, {10: 99})
    loader = DataLoader(mortal(kind, deaths), 4, num_workers=2)
    iterator = None
    with installed():
        iterator = iter(loader)
        assert len([next(iterator), next(iterator)]) == 2
        with pytest.raises(RuntimeError) as caught:
            next(iterator)
        iterator._shutdown_workers()
    assert "DataLoader worker (pid" in str(caught.value)
    assert "is killed by signal: Killed" in str(caught.value)
    told = "\n".join([str(caught.value), *getattr(caught.value, "__notes__", [])])
    assert "8, 9, 10, 11" in told, told
    assert deaths.count() == 3


class DiesWhileReplayed(Samples):
    """Whoever asks again for a sample that its chain had made before dies, `num_deaths` times a
    chain: between a worker's death and the moment at which its replacement has caught up."""

    def __init__(self, folder, num_deaths):
        super().__init__(48, "all")
        self.folder, self.num_deaths, self.mine = folder, num_deaths, set()

    def __getitem__(self, index):
        sample = super().__getitem__(index)
        made = self.folder / f"made-{index}"
        if made.exists() and index not in self.mine:
            chain = get_worker_info().id
            Deaths(self.folder, {f"chain-{chain}": self.num_deaths}).maybe(f"chain-{chain}")
        elif self.num_deaths:
            made.touch()
        self.mine.add(index)
        return sample


class DiesAndDiesWhileReplayed(DiesWhileReplayed):
    """Of worker 0, in sample 40; and once again before that one has its turn."""

    def __getitem__(self, index):
        if index == 40:
            Deaths(self.folder, {"of-40": self.num_deaths}).maybe("of-40")
        return super().__getitem__(index)


@pytest.mark.away
def test_elsewhere_a_death_is_blamed_on_a_task_that_had_begun_there(tmp_path, monkeypatch):
    lost = []
    noted = lambda *words: lost.append(Lost(*words)) or lost[-1]  # noqa: E731
    monkeypatch.setattr(workers, "Lost", noted)
    make = lambda num_workers, num_deaths=1: DataLoader(  # noqa: E731
        DiesAndDiesWhileReplayed(tmp_path, num_deaths), 2, num_workers=num_workers
    )
    both(make, list, plain_loader=partial(make, num_deaths=0))
    assert [each.begun for each in lost] == [20, NOTHING]


def killed_twice(loader, kills):
    iterator = iter(loader)
    for k, batch in enumerate(iterator):
        yield batch
        if kills and k in (6, 7):
            kill(iterator._workers[k % 2])


def num_killed(folder):
    return len(list(folder.glob("chain-*")))


@pytest.mark.parametrize("persistent", [False, True])
def test_twelve_deaths_while_chains_are_replayed_change_nothing(tmp_path, persistent, monkeypatch):
    monkeypatch.setattr(history, "MAX_PAUSE_S", 0.1)  # between the deaths of a chain

    def make(num_workers, num_deaths=6):
        return DataLoader(
            DiesWhileReplayed(tmp_path, num_deaths), 2, num_workers=num_workers,
            persistent_workers=persistent,
        )  # fmt: skip

    both(
        make, partial(killed_twice, kills=True), plain_run=partial(killed_twice, kills=False),
        plain_loader=partial(make, num_deaths=0),
    )  # fmt: skip
    assert num_killed(tmp_path) == 12


def test_a_chain_that_always_dies_while_it_is_replayed_ends_in_torchs_error(tmp_path, monkeypatch):
    few = partial(Stream, limits=Limits(max_in_vain=4))
    monkeypatch.setattr(iterator, "Stream", few)
    with installed():
        loader = DataLoader(DiesWhileReplayed(tmp_path, 99), 2, num_workers=2)
        with pytest.raises(RuntimeError, match="is killed by signal: Killed") as caught:
            list(killed_twice(loader, kills=True))
    assert "4 times before it gave any batch" in caught.value.__notes__[0]


def test_two_tasks_that_each_kill_twice_go_through(tmp_path):
    check("own generator", Deaths(tmp_path, {8: 2, 9: 2, 10: 2}), workers=1)


def test_a_death_in_worker_init_fn_is_replaced_or_told(tmp_path):
    deaths = Deaths(tmp_path, {0: 1})

    def make(num_workers, deaths=deaths):
        return DataLoader(
            Samples(12, "all"), 2, num_workers=num_workers, worker_init_fn=deaths.maybe
        )

    immortal = partial(make, deaths=Deaths(tmp_path, {}))
    both(make, list, plain_loader=immortal)
    assert deaths.count() == 1


def test_randomness_of_the_trainer_is_untouched_by_deaths(tmp_path):
    case_run = partial(three_epochs, change="attribute")
    deaths = Deaths(tmp_path, {6: 1, 11: 1})

    def make(num_workers, deaths=deaths):
        return DataLoader(mortal("own generator", deaths), 2, True, num_workers=num_workers)

    both(make, case_run, plain_loader=partial(make, deaths=Deaths(tmp_path, {})))
