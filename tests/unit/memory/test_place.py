"""A place in one process: what it serves is what the dataset makes, whatever others find meanwhile."""

import gc
import os
import random
import sys
import time
import weakref

import pytest
import torch
from torch.utils.data import default_collate
from torch.utils.data._utils.collate import default_collate_fn_map

from stoker.memory import phases
from stoker.memory.phases import EMPTY, Phase, packed
from stoker.memory.stand_in import Memory
from stoker.memory.store import Seat, ShelfAccess, make_shelf
from stoker.memory.watch import Evidence
from tests.equality import impure


@pytest.fixture
def shelf():
    return make_shelf(1 << 24)


def place_in(shelf, dataset, seat=0):
    memory = Memory(ShelfAccess(shelf, seat, b"loader", False), is_only_worker=True)
    return memory.around(dataset, default_collate)._get.__self__


def seeded(call, index):
    random.seed(index)
    return call(index), random.random()


@pytest.fixture
def no_gc_callbacks():
    """Hypothesis reads the clock whenever garbage is collected, also in a sample under watch."""
    held, gc.callbacks[:] = gc.callbacks[:], []
    yield
    gc.callbacks[:] = held


@pytest.fixture
def served(shelf, tmp_path, no_gc_callbacks):
    """A dataset whose place serves, and which has been seen to equal it."""
    dataset = impure.OneLine(tmp_path)
    place = place_in(shelf, dataset)
    while place._phase is not Phase.SERVING:
        assert place._phase is not Phase.OFF or not place._tally.known()[1]
        for index in range(impure.NUM):
            assert seeded(place.get, index) == seeded(dataset.__getitem__, index)
    return dataset, place


def test_a_depth_that_another_worker_changes_between_two_samples_changes_none(shelf, served):
    dataset, place = served
    other = Seat(shelf, 1).row_of(place._tally.key, "")
    other.write(EMPTY._replace(first_draw=packed((place._depth.path[0] - 1, 0))))
    before = place._depth
    for index in list(range(impure.NUM)) * 5:
        assert seeded(place.get, index) == seeded(dataset.__getitem__, index)
    assert place._depth != before
    assert place._phase is Phase.SERVING
    again = place_in(shelf, dataset, seat=2)  # finds what was kept since
    for index in range(impure.NUM):
        assert seeded(again.get, index) == seeded(dataset.__getitem__, index)


def test_a_workers_first_hits_are_made_anew_and_stand_for_those_behind_them(
    shelf, served, monkeypatch
):
    """Of a worker that is started for an epoch, as most are."""
    monkeypatch.setattr(phases, "FIRST_FRAC", 1.0)  # of so little data
    dataset, place = served
    for seat in (2, 3):  # for the first the environment is another: pytest tells it where it is
        worker = place_in(shelf, dataset, seat)
        for index in range(impure.NUM):
            assert seeded(worker.get, index) == seeded(dataset.__getitem__, index)
    worker._tally.close()
    counts = worker._tally.counts
    num_first = phases.num_first(place._tally.known()[0])
    assert counts.num_checked == num_first > 1
    assert counts.num_hits == impure.NUM + num_first // 2  # and those that nobody asked for
    worker.get(0)  # of the next epoch
    assert worker._tally.counts.num_checked > num_first


def test_a_worker_in_anothers_seat_knows_what_that_one_has_proven(shelf, served):
    dataset, _ = served
    place_in(shelf, dataset).get(0)  # the environment is another, see above
    place_in(shelf, dataset).get(1)
    worker = place_in(shelf, dataset)
    assert worker._proof.is_begun(worker._prefix.told)
    worker._refresh()
    assert worker._proof.is_begun(worker._prefix.told)


def test_what_a_sample_imports_is_looked_at_however_it_was_made(
    shelf, tmp_path, no_gc_callbacks, monkeypatch
):
    """A library may tell the environment something; nothing more is to be written here."""
    name = "tests.equality.impure_import"
    before = dict(os.environ)
    dataset = impure.ImportsWhatTellsTheEnvironment(tmp_path)
    for seat in (0, 1):
        if sys.modules.pop(name, None) is not None:
            del sys.modules["tests.equality"].impure_import
        for variable in os.environ.keys() - before.keys():
            monkeypatch.delenv(variable)
        worker = place_in(shelf, dataset, seat)
        for index in range(impure.NUM):
            assert torch.equal(worker.get(index), dataset[index])
        monkeypatch.setattr(phases, "may_write", lambda *_: False)
    assert worker._tally.counts.num_stored == 0
    assert worker._tally.num_hits > impure.NUM // 2


OF_A_CELL = """
def made(i):
    value = hard_work(i)
    return numbers(value {sign} random.random())
"""


def test_a_cut_of_a_function_that_ends_otherwise_is_another_one(shelf, tmp_path, no_gc_callbacks):
    """As a cell of a notebook defines it anew: what was proven of the first one's does not count."""
    told = []
    for seat, sign in enumerate("+-"):
        file = tmp_path / f"{seat}.py"
        file.write_text(OF_A_CELL.format(sign=sign))
        space = {**vars(impure), "__name__": "cell"}
        exec(compile(file.read_text(), str(file), "exec"), space)
        dataset = impure.CallsAnAttribute(tmp_path)
        dataset.made = space["made"]
        place = place_in(shelf, dataset, seat)
        for index in (*range(impure.NUM), *range(impure.NUM)):
            assert torch.equal(
                *(seeded(call, index)[0] for call in (place.get, dataset.__getitem__))
            )
        told.append((place._prefix.state.now, place._prefix.told))
    assert len({state for state, _ in told}) == 1
    assert len({of_cut for _, of_cut in told}) == 2


def test_a_value_that_differed_ends_it_in_the_other_loaders_too(shelf, served):
    """At once, and not at the next look at what others have found."""
    dataset, place = served
    memory = Memory(ShelfAccess(shelf, 1, b"another loader", False), is_only_worker=True)
    other = memory.around(dataset, default_collate)._get.__self__
    while other._phase is not Phase.SERVING:
        for index in range(impure.NUM):
            other.get(index)
    num_hits = other._tally.num_hits
    other.get(0)
    assert other._tally.num_hits > num_hits
    num_hits = other._tally.num_hits
    place._restate()  # pytest has changed a variable since
    place._tally.drop(place._prefix.state.now)
    for index in range(3):
        assert seeded(other.get, index) == seeded(dataset.__getitem__, index)
    assert other._tally.num_hits == num_hits
    assert "of the same dataset differed" in other._tally.known()[1]


def test_a_state_that_comes_back_is_not_served_where_a_value_of_it_differed(shelf, tmp_path):
    dataset = impure.Scaled(tmp_path)
    place = place_in(shelf, dataset)
    while place._phase is not Phase.SERVING:
        for index in range(impure.NUM):
            place.get(index)
    first = place._prefix.state.now
    dataset.scale = 7.0
    place.get(0)
    assert place._prefix.state.now != first
    place._tally.drop(first)
    place.get(0)
    assert place._phase is not Phase.OFF
    dataset.scale = 1.0
    for index in range(4):
        place.get(index)
    assert place._phase is Phase.OFF


def register(monkeypatch):
    kind = type("Kind", (), {})
    monkeypatch.setitem(default_collate_fn_map, kind, lambda batch, *, collate_fn_map: batch)


def test_samples_are_copies_where_a_script_has_told_torchs_collate_what_to_do(
    shelf, tmp_path, monkeypatch
):
    place = place_in(shelf, impure.Pure(tmp_path))
    assert not place._desk.copies
    register(monkeypatch)
    place = place_in(shelf, impure.Pure(tmp_path), 1)
    assert place._desk.copies


def test_and_where_it_tells_it_later(shelf, tmp_path, monkeypatch):
    memory = Memory(ShelfAccess(shelf, 0, b"loader", False), is_only_worker=True)
    memory.around(impure.Pure(tmp_path), default_collate)
    register(monkeypatch)
    memory.look()  # as before each batch
    assert memory._desk.copies


@pytest.mark.parametrize(
    "kind", [impure.LargeInPlace, impure.LargeArrayInPlace, impure.LargeImageInPlace]
)
def test_what_is_large_is_mapped_and_written_to_by_nobody_else(kind, tmp_path, no_gc_callbacks):
    dataset, place = kind(tmp_path), place_in(make_shelf(1 << 27), kind(tmp_path))
    mapped, stores = [], place._desk.stores
    own_memory_of = stores.own_memory_of

    def counted(kept):
        mapped.append(kept)
        return own_memory_of(kept)

    stores.own_memory_of = counted
    for index in [*range(32)] * 6:
        (ours, left), (theirs, left_there) = (
            seeded(get, index) for get in (place.get, dataset.__getitem__)
        )
        assert torch.equal(ours, theirs)
        assert left == left_there
    assert place._phase is Phase.SERVING
    assert len(mapped) > 32
    assert all(kept.entry.nbytes > 1 << 20 for kept in mapped)
    assert place._tally.counts.num_differed == 0


def test_a_place_that_another_worker_turns_off_serves_no_more(shelf, served):
    _, place = served
    Seat(shelf, 1).row_of(place._tally.key, "").say_why("sample 3 differed when it was made again")
    for index in list(range(impure.NUM)) * 3:
        place.get(index)
    assert place._phase is Phase.OFF


def test_a_place_of_which_a_sample_differed_on_another_machine_serves_no_more(shelf, served):
    dataset, place = served
    shelf.leave_alone({b"x" * 16: "another", place._tally.key: "it differed there"})
    for index in list(range(impure.NUM)) * 5:
        assert seeded(place.get, index) == seeded(dataset.__getitem__, index)
    assert place._phase is Phase.OFF
    assert place._tally.known()[1] == "it differed there"


def test_what_can_no_longer_be_watched_is_told_by_the_next_worker(shelf, served, tmp_path):
    dataset, place = served
    dataset.note = (tmp_path / "open").open("w")
    with dataset.note:
        again = place_in(shelf, dataset, seat=2)
        assert seeded(again.get, 1) == seeded(dataset.__getitem__, 1)
    assert again._phase is Phase.OFF
    assert "cannot be looked into" in shelf.counts_of(place._tally.key)[1]


def test_a_collection_of_garbage_in_a_sample_is_not_the_samples():
    def look_at_clock(phase, info):
        looks.append(time.perf_counter())

    looks = []
    gc.collect()  # what comes now is young
    # The shelf's descriptors are asked what they are of before they are closed.
    cycle = [make_shelf(1 << 20)]
    cycle.append(cycle)
    ended = weakref.ref(cycle[0])
    gc.callbacks.append(look_at_clock)
    heard = []
    evidence = Evidence(heard.append)
    thresholds, seen = gc.get_threshold(), len(looks)
    gc.set_threshold(1, 1)
    evidence.begin()
    del cycle
    garbage = [[] for _ in range(5000)]
    evidence.end()
    gc.set_threshold(*thresholds)
    gc.callbacks.remove(look_at_clock)
    assert garbage and len(looks) > seen and ended() is None
    assert heard == [] and evidence.asked == []
    evidence.begin()
    time.perf_counter()
    evidence.end()
    assert heard == ["calls time.perf_counter"]
