"""One thing is changed by a rule between two epochs or two runs: nothing that was kept is served."""

import contextlib
import gc
import linecache
import math
import random
import sys
import types
from pathlib import Path

import pytest
import torch
from torch.utils.data import default_collate

from stoker.memory import phases
from stoker.memory.phases import Phase
from stoker.memory.stand_in import Memory
from stoker.memory.store import DiskWish, ShelfAccess, make_shelf
from tests.unit.memory import changes

NAME = "changing_data"


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Proofs find what fingerprints miss: as few as can be, to see the fingerprints alone. Samples are
    worth keeping, whatever else the machine does."""
    monkeypatch.setattr(phases, "NUM_PROVE", 1)
    monkeypatch.setattr(phases, "NUM_PROVE_CHANGED", 1)
    monkeypatch.setattr(phases, "MAX_FIRST", 0)
    monkeypatch.setattr(phases, "FREE_S", 100.0)
    monkeypatch.setattr(phases, "HIT_S", 1e-6)
    callbacks, gc.callbacks[:] = list(gc.callbacks), []  # hypothesis times each collection
    yield
    gc.callbacks[:] = callbacks
    sys.modules.pop(NAME, None)


def loaded(source, path):
    """The module, as a run finds it."""
    path.write_text(source)
    linecache.clearcache()
    module = types.ModuleType(NAME)
    module.__file__ = str(path)
    sys.modules[NAME] = module
    exec(compile(source, str(path), "exec"), vars(module))
    return module


def place_of(shelf, data):
    memory = Memory(ShelfAccess(shelf, 0, b"loader", False), is_only_worker=True)
    return memory.around(data, default_collate)._get.__self__


def outcome(get, index):
    try:
        return get(index).tolist()
    except Exception as error:
        return type(error).__name__, str(error)


def fill(shelf, data):
    place = place_of(shelf, data)
    for _ in range(8):
        for index in range(changes.NUM):
            place.get(index)
        counts, why = place._tally.known()
        assert not why, why
        if place._phase is Phase.SERVING and counts.num_stored >= changes.NUM:
            return
    raise AssertionError(counts)


def num_stale(shelf, data):
    place = place_of(shelf, data)
    wrong = [
        index
        for index in [*range(changes.NUM)] * 2
        if outcome(place.get, index) != outcome(data.__getitem__, index)
    ]
    return len(wrong), place._tally.num_hits


class Runs:
    """Runs in one process that keep samples in one folder."""

    def __init__(self, top):
        self.folder, self.top = top / "files", top
        self.folder.mkdir()
        changes.write_files(self.folder)
        self.wish = DiskWish(Path(top), 1 << 26, keeps=True)

    def shelf(self):
        shelf = make_shelf(1 << 24)
        shelf.add_disk(self.wish)
        assert not shelf.why_no_disk
        return shelf

    def run(self, source):
        """The module and its dataset, as a run finds them."""
        module = loaded(source, self.top / "changing_data.py")
        return module, module.Data(str(self.folder))

    def run_of_another_token(self, rng):
        """The same, of a source of which one token is another, and which starts."""
        while True:
            with contextlib.suppress(Exception):
                return self.run(changes.changed_token(rng, changes.SOURCE))

    def stale(self, rule, rng):
        """How many samples are stale after one change, and how many were served."""
        restore, (module, data), shelf = lambda: None, self.run(changes.SOURCE), self.shelf()
        data[0]  # what it imports, pytest's hook looks for in folders
        fill(shelf, data)
        if rule == "token":
            (module, data), shelf = self.run_of_another_token(rng), self.shelf()
        elif rule == "nothing" or rng.random() < 0.5:
            (module, data), shelf = self.run(changes.SOURCE), self.shelf()
        floor = math.floor
        try:
            if rule == "attribute":
                changes.change_attribute(rng, module, data)
            elif rule == "file":
                changes.change_file(rng, self.folder)
            elif rule == "setting":
                restore = changes.change_setting(rng, self.folder)
            return num_stale(shelf, data)
        finally:
            restore()
            math.floor = floor


@pytest.mark.parametrize("rule", ["nothing", "token", "attribute", "file", "setting"])
@pytest.mark.parametrize("num", [3, pytest.param(250, marks=pytest.mark.full)])
def test_what_was_kept_before_a_change_is_not_served_after_it(rule, num, tmp_path):
    num_served = 0
    for seed in range(num if rule != "nothing" else 2):
        top = tmp_path / str(seed)
        top.mkdir()
        runs = Runs(top)
        wrong, num_hits = runs.stale(rule, random.Random(f"{rule} {seed}"))
        assert wrong == 0, f"{rule} {seed}"
        num_served += num_hits
    print(f"{rule}: {num_served} samples were served after the changes")
    if rule == "nothing":
        assert num_served > changes.NUM
    assert torch.get_default_dtype() is torch.float32
