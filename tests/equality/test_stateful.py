"""torchdata's StatefulDataLoader: the same batches, and the same state_dict at every one of them."""

import contextlib
import os
import pickle
import re
import signal
from functools import partial

import pytest
import torch
from torch.utils.data import get_worker_info

pytest.importorskip("torchdata.stateful_dataloader", reason="torchdata not installed")
from torchdata.stateful_dataloader import StatefulDataLoader

from stoker.config import Settings
from stoker.intercept import run
from stoker.loaders import multiprocess as iterator
from stoker.reports.digest import batch_sha256
from stoker.scheduler.decider import Stream
from stoker.scheduler.state import Limits
from tests.equality.sides import QUIET, installed, is_ours, seed_trainer
from tests.equality.stateful import (
    DATASETS,
    ORDERS,
    STREAMS,
    Plain,
    Telling,
    both,
    epochs_with_states,
    loader_of,
    on_stoker,
    plainly,
    play,
    resumed,
)

# torchdata 0.11 calls torch.set_vital, which torch 2.13 calls deprecated.
pytestmark = pytest.mark.filterwarnings("ignore:'set_vital' is deprecated:UserWarning")

# -- states in an epoch --------------------------------------------------------------------------


@pytest.mark.cover(2)
@pytest.mark.parametrize("every", [1, 3])
@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("kind", DATASETS)
def test_the_state_at_every_batch_is_torchdatas(kind, persistent, every):
    both(
        epochs_with_states,
        partial(loader_of, kind, persistent_workers=persistent, snapshot_every_n_steps=every),
        is_ragged=kind in STREAMS,
    )


@pytest.mark.parametrize("kind", STREAMS)
def test_an_end_that_no_short_batch_foretells_shows_in_the_state_when_its_turn_comes(kind):
    # Shares of 18 and 9 samples in batches of 3: a worker learns of its end by asking once more.
    both(epochs_with_states, partial(loader_of, kind, num_samples=36), is_ragged=True)


@pytest.mark.cover(1)
@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("kind", DATASETS)
def test_the_state_is_torchdatas_whatever_the_number_of_workers(kind, workers):
    both(epochs_with_states, partial(loader_of, kind, workers=workers), is_ragged=kind in STREAMS)


@pytest.mark.cover(1)
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("kind", ["plain", "telling"])
def test_the_state_of_every_sampler_is_torchdatas(kind, order):
    both(epochs_with_states, partial(loader_of, kind, order, num_samples=30))


@pytest.mark.cover(1)
@pytest.mark.parametrize("every", [0, None, 2, 7, 50])
@pytest.mark.parametrize("kind", ["telling", "walks"])
def test_the_state_is_torchdatas_however_rarely_it_is_taken(kind, every):
    both(
        epochs_with_states,
        partial(loader_of, kind, snapshot_every_n_steps=every, prefetch_factor=1),
        is_ragged=kind in STREAMS,
    )


# -- going on ------------------------------------------------------------------------------------


@pytest.mark.cover(1)
@pytest.mark.parametrize("every", [1, 3])
@pytest.mark.parametrize("kind", DATASETS)
def test_a_loader_that_is_resumed_goes_on_as_torchdatas_would(kind, every):
    both(
        partial(resumed, again_at=2),
        partial(loader_of, kind, snapshot_every_n_steps=every),
        is_ragged=kind in STREAMS,
    )


@pytest.mark.away_by_default
@pytest.mark.parametrize("order", ORDERS)
def test_every_sampler_is_resumed_as_by_torchdata(order):
    both(resumed, partial(loader_of, "telling", order, num_samples=30))


@pytest.mark.parametrize("kind", ["telling", "walks"])
def test_persistent_workers_are_resumed_as_by_torchdata(kind):
    both(resumed, partial(loader_of, kind, persistent_workers=True), is_ragged=kind in STREAMS)


def saved_after(make, num_batches):
    loader = make()
    seed_trainer()
    for number, _ in enumerate(loader, 1):
        if number == num_batches:
            return pickle.loads(pickle.dumps(loader.state_dict()))
    return pickle.loads(pickle.dumps(loader.state_dict()))


def the_rest(make, state):
    loader = make()
    seed_trainer()
    loader.load_state_dict(state)
    return [batch_sha256(batch) for epoch in range(2) for batch in loader]


@pytest.mark.cover(1)
@pytest.mark.parametrize("num_batches", [1, 4, 1000])
@pytest.mark.parametrize("kind", DATASETS)
def test_a_state_that_either_saved_is_good_for_the_other(kind, num_batches):
    make = partial(loader_of, kind, snapshot_every_n_steps=2)
    plain_state = saved_after(make, num_batches)
    expected = the_rest(make, plain_state)
    with installed(QUIET):
        state = saved_after(make, num_batches)
        assert the_rest(make, plain_state) == expected
    assert the_rest(make, state) == expected
    assert expected


@pytest.mark.parametrize("workers", [0, 2])
def test_batches_that_are_only_passed_by_are_not_counted(workers, capsys):
    make = partial(loader_of, "stream", workers=workers)
    state = saved_after(make, 4)
    with installed(Settings()):
        loader = make()
        loader.load_state_dict(state)
        rest = list(loader)
        records = list(run.recorder()._loaders)
        del loader
    assert [record.num_batches for record in records] == [len(rest)]
    assert "without asking" not in capsys.readouterr().err


# -- when the script asks ------------------------------------------------------------------------


def asks_first(make):
    loader = make()
    yield loader.state_dict()
    yield from loader
    yield loader.state_dict()
    yield from loader


def loads_its_end(make):
    loader = make()
    yield from loader
    state = loader.state_dict()
    yield state
    loader = make()
    loader.load_state_dict(state)
    yield loader.state_dict()
    yield from loader
    yield loader.state_dict()


def loads_nothing(make):
    loader = make()
    yield next(iter(loader))
    loader.load_state_dict({})
    yield from loader


def breaks_off(make):
    loader = make()
    for _ in range(3):
        for number, batch in enumerate(loader):
            yield batch
            yield loader.state_dict()
            if number == 2:
                break


@pytest.mark.cover(2)
@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("kind", DATASETS)
@pytest.mark.parametrize("loop", [asks_first, loads_its_end, loads_nothing, breaks_off])
def test_whenever_the_script_asks_the_answer_is_torchdatas(loop, kind, persistent):
    both(loop, partial(loader_of, kind, persistent_workers=persistent), is_ragged=kind in STREAMS)


def wrong_state(make):
    loader = make()
    loader.load_state_dict({"_iterator_finished": False})
    try:
        iter(loader)
    except AssertionError as error:
        yield str(error)


def state_of_another_number_of_workers(make):
    state = make(workers=3).state_dict()
    loader = make()
    loader.load_state_dict(state)
    try:
        iter(loader)
    except AssertionError:
        yield "refused"


@pytest.mark.parametrize("loop", [wrong_state, state_of_another_number_of_workers])
def test_a_state_that_torchdata_refuses_is_refused_alike(loop):
    both(loop, partial(loader_of, "telling"))


# -- what datasets do ----------------------------------------------------------------------------


class Failing(Telling):
    def __getitem__(self, index):
        if index == 10:
            raise LookupError(f"no sample {index}")
        return super().__getitem__(index)


class CannotTell(Plain):
    def state_dict(self):
        if self.generator.initial_seed() and not self.is_told:
            self.is_told = True
            return {}
        raise OSError("the state is gone")

    is_told = False

    def load_state_dict(self, state):
        raise OSError("cannot be loaded")


class CannotBegin(Plain):
    def state_dict(self):
        raise OSError("no state at all")

    def load_state_dict(self, state):
        raise OSError("cannot be loaded")


def raises(make):
    loader = make()
    try:
        for batch in loader:
            yield batch
            yield loader.state_dict()
    except (LookupError, OSError) as error:
        first, *_, last = str(error).splitlines()
        # Where every worker fails, torchdata raises what comes first.
        yield f"{type(error)} {re.sub('process [01]', 'process N', first)} {last}"
        yield loader.state_dict() if loader._iterator else "no iterator"


@pytest.mark.parametrize("kind", [Failing, CannotTell, CannotBegin])
def test_what_a_dataset_raises_arrives_as_from_torchdata(kind):
    both(
        raises,
        # by fork, as `loader_of`
        lambda: StatefulDataLoader(kind(), 3, num_workers=2, multiprocessing_context="fork"),
    )


def failing_init(worker_id):
    raise OSError("no room")


def test_worker_init_fn_may_fail_as_under_torchdata():
    both(raises, partial(loader_of, "plain", worker_init_fn=failing_init))


def seed_own(worker_id):
    get_worker_info().dataset.generator.manual_seed(worker_id)


def test_worker_init_fn_may_change_what_is_told():
    both(epochs_with_states, partial(loader_of, "telling", worker_init_fn=seed_own))


# -- deaths --------------------------------------------------------------------------------------


def kills(make, at=(1, 4)):
    """Kill a worker after these batches, on stoker's side alone: torchdata would give up."""
    loader = make()
    for _ in range(2):
        for number, batch in enumerate(loader):
            yield batch
            yield loader.state_dict()
            if number in at and on_stoker():
                victim = loader._iterator._workers[number % 2]
                with contextlib.suppress(ProcessLookupError):
                    os.kill(victim.pid, signal.SIGKILL)
                victim.join(5)
        yield loader.state_dict()


@pytest.mark.cover(2)
@pytest.mark.parametrize("every", [1, 7])
@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("kind", DATASETS)
def test_a_killed_worker_changes_neither_batch_nor_state(kind, persistent, every):
    both(
        kills,
        partial(
            loader_of, kind, num_samples=60, persistent_workers=persistent,
            snapshot_every_n_steps=every,
        ),
        is_ragged=kind in STREAMS,
    )  # fmt: skip


@pytest.mark.parametrize("kind", DATASETS)
def test_a_worker_killed_after_a_resume_begins_where_the_state_says(kind):
    make = partial(loader_of, kind, num_samples=60)
    state = saved_after(make, 5)

    def loop(make):
        loader = make()
        loader.load_state_dict(state)
        yield from kills(lambda: loader)

    both(loop, make, is_ragged=kind in STREAMS)


def test_a_worker_that_dies_before_its_first_word_is_replaced(tmp_path):
    def die_once(worker_id):
        with contextlib.suppress(FileExistsError):
            (tmp_path / "died").touch(exist_ok=False)
            os.kill(os.getpid(), signal.SIGKILL)

    expected = play(epochs_with_states, partial(loader_of, "telling", worker_init_fn=seed_none))
    with installed(QUIET):
        got = play(epochs_with_states, partial(loader_of, "telling", worker_init_fn=die_once))
    assert (tmp_path / "died").exists() and got == expected


def seed_none(worker_id):
    pass


def always_dies(worker_id):
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_worker_that_always_dies_at_its_start_is_told_in_torchs_words(monkeypatch):
    few = partial(Stream, limits=Limits(max_in_vain=3))
    monkeypatch.setattr(iterator, "Stream", few)  # each is started later than the one before
    with installed(QUIET), pytest.raises(RuntimeError, match="is killed by signal: Killed"):
        iter(loader_of("telling", worker_init_fn=always_dies))


# -- what is left to torchdata ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "reason"),
    [({"workers": 0}, "num_workers=0: "), ({"in_order": False}, "in_order=False: ")],
)
def test_what_stoker_cannot_carry_stays_with_torchdata_with_a_reason(options, reason, capsys):
    with installed(Settings()):
        loader = loader_of("telling", **options)
        assert len(list(loader)) == 14
        assert not is_ours(type(loader._iterator))
        del loader
    said = [line for line in capsys.readouterr().err.splitlines() if "stays with torchdata" in line]
    assert len(said) == 1 and reason in said[0]


def test_a_subclass_that_overrides_get_iterator_stays_with_torchdata():
    class Own(StatefulDataLoader):
        def _get_iterator(self):
            return super()._get_iterator()

    with installed(QUIET):
        loader = Own(Telling(), 3, num_workers=1, multiprocessing_context="fork")
        assert len(list(loader)) == 14
        assert not is_ours(type(loader._iterator))
        del loader


def test_an_order_of_dict_keys_is_not_part_of_the_comparison_but_values_are():
    assert plainly({"a": 1, "b": torch.ones(1)}) == plainly({"b": torch.ones(1), "a": 1})
    assert plainly({"b": torch.ones(1)}) != plainly({"b": torch.zeros(1)})
