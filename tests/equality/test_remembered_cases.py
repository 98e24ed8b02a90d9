"""Samples of every kind of loader, remembered: what may happen to the store between epochs changes no batch.

Each pair of: an option of the loader, and what becomes of what is kept. Nothing is too cheap to be
remembered here, and little has to be proven, so that 27 samples are served from the third epoch on.
"""

import itertools
import os
import random
import signal
from functools import partial

import pytest

from stoker import config
from stoker.config import Settings
from stoker.memory import phases
from stoker.memory.store import shelves
from tests.equality.cases import AXES, CHANGES, Case, DrawsLast, make_loader, pairwise, step
from tests.equality.forms import FORMS
from tests.equality.remembering import damage, with_small_index
from tests.equality.sides import both

NUM_EPOCHS = 5
MEMORY, DISK = "memory", "disk"
# What happens, and where samples are kept. "audit": all are made again; "full": few find room; "two
# runs": another one comes and goes, on the same folder.
MODES = {
    "on": MEMORY, "off": MEMORY, "audit": MEMORY, "full": MEMORY, "damaged": MEMORY,
    "killed": MEMORY, "disk": DISK, "cut short": DISK, "killed beside a disk": DISK, "two runs": DISK,
}  # fmt: skip
ROWS = pairwise({"mode": tuple(MODES)} | {name: AXES[name] for name in AXES if name != "form"})
CASES = [
    pytest.param(row["mode"], case, id=f"{row['mode']}-{case}")
    for row, form in zip(ROWS, itertools.cycle(FORMS), strict=False)
    for case in [Case(**{name: row[name] for name in row if name != "mode"}, form=form)]
]

pytestmark = pytest.mark.forks  # workers have what is set here


@pytest.fixture(autouse=True)
def all_is_worth_it(monkeypatch):
    monkeypatch.setattr(shelves, "_shelf", None)
    monkeypatch.setattr(phases, "HIT_S", 1e-9)
    monkeypatch.setattr(phases, "MAX_LEFT", 1e9)
    monkeypatch.setattr(phases, "FREE_S", 100.0)
    monkeypatch.setattr(phases, "NUM_LEARN", 4)
    monkeypatch.setattr(phases, "NUM_PROVE", 4)


class Happening:
    """What a mode does to the store, between the epochs of stoker's side and during them."""

    def __init__(self, mode, tmp_path):
        self.mode, self.rng, self.folder = mode, random.Random(3), tmp_path
        self.others = None  # the shelf of the other run
        self.num_epochs = 0

    @property
    def settings(self):
        cache = self.mode if self.mode in ("off", "audit") else "auto"
        memory = {"full": 6 * 256}.get(self.mode, 1 if MODES[self.mode] == DISK else None)
        found = Settings(quiet=True, cache=cache, cache_memory=memory)
        if MODES[self.mode] == MEMORY:
            return found
        disk = config.Disk(str(self.folder), 1 << 30)
        return found._replace(cache_disk=disk, cache_keep=True)

    def between_epochs(self):
        self.num_epochs += 1
        shelf = shelves.own_shelf()
        if self.mode == "damaged" and shelf is not None:
            damage(shelf, self.rng)
        elif self.mode == "two runs":
            shelves._shelf, self.others = self.others, shelves._shelf
        elif self.mode == "cut short" and self.num_epochs == 3:  # each time were in vain
            for path in self.folder.rglob("*.values"):
                os.truncate(path, path.stat().st_size // 2)

    def within_epoch(self, iterator, epoch, number):
        if self.mode.startswith("killed") and number == epoch:
            workers = iterator._workers
            os.kill(workers[epoch % len(workers)].pid, signal.SIGKILL)


def epochs(loader, happening=None, change="nothing"):
    """Yield the batches of some epochs, of which the second ends early."""
    for epoch in range(NUM_EPOCHS):
        iterator = iter(loader)
        for number, batch in enumerate(iterator):
            yield batch
            del batch
            step()
            if happening is not None:
                happening.within_epoch(iterator, epoch, number)
            if epoch == 1 and number == 3:
                break
        del iterator
        CHANGES[change](loader, epoch)
        if happening is not None:
            happening.between_epochs()


@pytest.mark.few(12)
@pytest.mark.parametrize(("mode", "case"), CASES)
def test_batches_are_torchs_whatever_becomes_of_what_is_kept(mode, case, tmp_path, monkeypatch):
    if mode == "damaged":
        with_small_index(monkeypatch)
    happening = Happening(mode, tmp_path)
    both(
        partial(make_loader, case, kind=DrawsLast),
        partial(epochs, happening=happening, change=case.change),
        plain_run=partial(epochs, change=case.change),
        workers=case.workers,
        settings=happening.settings._replace(chains=case.chains),
    )


@pytest.mark.parametrize("draws", ["none", "all"])
@pytest.mark.parametrize("mode", [mode for mode in MODES if mode not in ("off", "damaged")])
def test_these_cases_are_remembered(mode, draws, tmp_path):
    """Or the test above would test nothing. Damage hits the counts too: see test_remembered.py."""
    happening = Happening(mode, tmp_path)
    both(
        partial(make_loader, Case(draws=draws), kind=DrawsLast),
        partial(epochs, happening=happening),
        plain_run=epochs,
        settings=happening.settings,
    )
    ((_, why, counts),) = shelves.own_shelf().places().values()
    assert why == ""
    assert counts.num_differed == 0
    assert counts.num_hits > counts.num_checked or mode == "audit"
    assert counts.num_hits > 10
