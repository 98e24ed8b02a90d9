"""Datasets, samplers and loops for StatefulDataLoader, and how two sides are compared.

Promise: every loop is played on torchdata alone and on stoker. Compared are batches, the trainer's
generators after each, and the whole nested state; only how many empty indices were drawn for an
iterable is not (`_sampler_iter_yielded`, `samples_yielded`): once one of its workers has ended,
torchdata's own depends on who was quicker, and nothing reads it.
"""

import gc
import multiprocessing
import pickle
from dataclasses import dataclass
from functools import partial

import torch
from torch.utils.data import Dataset, IterableDataset, get_worker_info
from torchdata.stateful_dataloader import StatefulDataLoader
from torchdata.stateful_dataloader.sampler import StatefulDistributedSampler

from stoker.intercept import patches, run
from stoker.reports.digest import batch_sha256
from tests.equality.cases import step
from tests.equality.sides import (
    QUIET,
    installed,
    is_ours,
    seed_trainer,
    torch_is_quick_to_terminate,
    trainer_rng,
)


class Plain(Dataset):
    """Draws from a global generator and from one of its own; tells no state."""

    def __init__(self, num_samples=40):
        self.num_samples = num_samples
        self.generator = torch.Generator().manual_seed(5)

    def __len__(self):
        return self.num_samples

    def __getitem__(self, index):
        own = torch.rand(3, generator=self.generator)
        return torch.full((3,), float(index)) + torch.rand(3), own


class Telling(Plain):
    """Tells a state that moves, grows, shrinks and holds tensors."""

    def __init__(self, num_samples=40):
        super().__init__(num_samples)
        self.seen = 0
        self.last = {}

    def __getitem__(self, index):
        self.seen += 1
        self.last = {f"at {self.seen % 3}": index, "same": {"deep": [1, 2]}}
        return *super().__getitem__(index), self.seen

    def state_dict(self):
        return {
            "seen": self.seen,
            "last": self.last,
            "generator": self.generator.get_state(),
        }

    def load_state_dict(self, state):
        self.seen = state["seen"]
        self.last = state["last"]
        self.generator.set_state(state["generator"])


class MutatesWhatItTold(Plain):
    """Gives out its own list, which torchdata then takes for unmoved."""

    def __init__(self, num_samples=40):
        super().__init__(num_samples)
        self.history = []

    def __getitem__(self, index):
        self.history.append(index)
        return super().__getitem__(index)

    def state_dict(self):
        return {"history": self.history, "num": len(self.history)}

    def load_state_dict(self, state):
        self.history = list(state["history"])


def share(num_samples):
    """This worker's numbers; those of a later worker are fewer, so that they end unevenly."""
    info = get_worker_info()
    if info is None:
        return list(range(num_samples))
    mine = list(range(num_samples)[info.id :: info.num_workers])
    return mine[: len(mine) // (1 + info.id)]


class Stream(IterableDataset):
    """No state at all: resumed by fetching again."""

    def __init__(self, num_samples=40):
        self.num_samples = num_samples

    def __iter__(self):
        for index in share(self.num_samples):
            yield torch.full((2,), float(index)) + torch.rand(2)


class StreamTelling(Stream):
    """The dataset is its own iterator, and tells its place."""

    def __iter__(self):
        self.left = share(self.num_samples)
        if not hasattr(self, "place") or self.place >= len(self.left):
            self.place = 0  # the epoch before has ended
        return self

    def __next__(self):
        if self.place >= len(self.left):
            raise StopIteration
        self.place += 1
        return torch.full((2,), float(self.left[self.place - 1]))

    def state_dict(self):
        return {"place": getattr(self, "place", None)}

    def load_state_dict(self, state):
        self.place = state["place"]


class Walk:
    def __init__(self, numbers):
        self.numbers, self.place = numbers, 0

    def __iter__(self):
        return self

    def __next__(self):
        if self.place == len(self.numbers):
            raise StopIteration
        self.place += 1
        return torch.full((2,), float(self.numbers[self.place - 1]))

    def state_dict(self):
        return {"place": self.place, f"odd {self.place % 2}": True}

    def load_state_dict(self, state):
        self.place = state["place"]


class StreamOfWalks(Stream):
    """Its iterator tells its place."""

    def __iter__(self):
        return Walk(share(self.num_samples))


class StreamOfWalksTelling(StreamOfWalks):
    """And so does the dataset."""

    epochs = 0

    def __iter__(self):
        self.epochs += 1
        return super().__iter__()

    def state_dict(self):
        return {"epochs": self.epochs}

    def load_state_dict(self, state):
        self.epochs = state["epochs"]


MAPS = {"plain": Plain, "telling": Telling, "mutates": MutatesWhatItTold}
STREAMS = {
    "stream": Stream,
    "stream telling": StreamTelling,
    "walks": StreamOfWalks,
    "walks telling": StreamOfWalksTelling,
}
DATASETS = {**MAPS, **STREAMS}


class Turns(torch.utils.data.Sampler):
    """A sampler of the script's, whose iterator is the sampler's own business: fast-forwarded."""

    def __init__(self, num_samples):
        self.num_samples = num_samples

    def __len__(self):
        return self.num_samples

    def __iter__(self):
        return iter(sorted(range(self.num_samples), key=lambda k: k % 7))


class Pairs(torch.utils.data.Sampler):
    """A batch sampler that tells its place itself."""

    def __init__(self, num_samples):
        self.num_samples, self.place = num_samples, 0

    def __len__(self):
        return self.num_samples // 2

    def __iter__(self):
        while self.place < self.num_samples:
            self.place += 2
            yield [self.place - 1, self.place - 2]
        self.place = 0

    def state_dict(self):
        return {"place": self.place}

    def load_state_dict(self, state):
        self.place = state["place"]


def distributed(dataset):
    return {"sampler": StatefulDistributedSampler(dataset, 2, 1, shuffle=True), "batch_size": 3}


ORDERS = {
    "in order": lambda dataset: {"batch_size": 3},
    "shuffled": lambda dataset: {"batch_size": 3, "shuffle": True},
    "distributed": distributed,
    "own sampler": lambda dataset: {"batch_size": 3, "sampler": Turns(len(dataset))},
    "own batch sampler": lambda dataset: {"batch_sampler": Pairs(len(dataset))},
    "sample by sample": lambda dataset: {"batch_size": None},
}


def loader_of(kind, order="in order", *, workers=2, num_samples=40, **options):
    dataset = DATASETS[kind](num_samples)
    if workers and kind in MAPS:
        # torch cannot send their generator to a process of the fork server: its state's memory is gone by then.
        options = {"multiprocessing_context": "fork", **options}
    return StatefulDataLoader(
        dataset, num_workers=workers, **{**ORDERS[order](dataset), **options}
    )  # fmt: skip


# -- two sides -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Seen:
    """One thing that a loop told of: a batch, a state or a word, and the trainer's generators."""

    what: object
    rng: str


def play(loop, make, **options):
    """All that a loop yields. Whatever is a state is compared as one, all else by hash."""
    seed_trainer()
    seen = [Seen(told(something), trainer_rng()) for something in loop(partial(make, **options))]
    gc.collect()
    multiprocessing.active_children()  # torchdata leaves its own as zombies where one failed
    return seen


def told(something):
    if isinstance(something, dict) and "_snapshot" in something:
        return plainly(something)
    return batch_sha256(something)[:16]


def plainly(value):
    """A state with tensors as bytes, cut off from what may yet change it; order does not matter."""
    if isinstance(value, dict):
        return {key: plainly(inner) for key, inner in value.items()}
    if isinstance(value, torch.Tensor):
        return str(value.dtype), tuple(value.shape), value.numpy().tobytes()
    return pickle.loads(pickle.dumps(value))


def both(loop, make, *, is_ragged=False):
    """Play on torchdata alone and on stoker; assert that every yield was equal."""
    with torch_is_quick_to_terminate():
        plain = play(loop, make)
    with installed(QUIET):
        ours = play(loop, make)
    assert plain, "nothing was yielded: the test tests nothing"
    for number, (one, other) in enumerate(zip(plain, ours, strict=True)):
        expected, got = one.what, other.what
        if is_ragged and isinstance(expected, dict):
            expected, got = without_draws(expected), without_draws(got)
        assert got == expected, number
        assert other.rng == one.rng, number
    return plain


def without_draws(state):
    told = {"_sampler_iter_yielded": None, "_sampler_iter_state": None}
    main = {**state["_snapshot"]["_main_snapshot"], **told}
    return {**state, "_snapshot": {**state["_snapshot"], "_main_snapshot": main}}


def on_stoker():
    """installed() sees to it that this side's iterators really are stoker's."""
    return run.settings is QUIET and bool(patches._originals)


def expect_ours(loader):
    """Checked from inside the loops."""
    assert is_ours(type(loader._iterator)) is on_stoker()


def epochs_with_states(make, epochs=2):
    loader = make()
    for _ in range(epochs):
        for batch in loader:
            expect_ours(loader)
            yield batch
            yield loader.state_dict()
            step()
        yield loader.state_dict()


def resumed(make, at=4, again_at=None):
    """Break off after `at` batches; go on in a fresh loader, perhaps twice."""
    loader = make()
    for number, batch in enumerate(loader, 1):
        yield batch
        if number == at:
            break
    state = pickle.loads(pickle.dumps(loader.state_dict()))
    yield state
    del loader
    loader = make()
    loader.load_state_dict(state)
    for number, batch in enumerate(loader, 1):
        expect_ours(loader)
        yield batch
        yield loader.state_dict()
        if number == again_at:
            break
    if again_at is not None:
        state = pickle.loads(pickle.dumps(loader.state_dict()))
        loader.load_state_dict(state)
        try:
            yield from loader
        except ValueError as error:  # torchdata's own, where it has fast-forwarded before
            yield str(error)
            loader = make()
    yield from epochs_with_states(lambda: loader, 1)  # the epoch after
    yield loader.state_dict()
