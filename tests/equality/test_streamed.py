"""Batches that are large enough for streaming stores are torch's, with the library and without."""

import weakref
from functools import partial

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, default_collate

from stoker.wire import batch_codec
from stoker.wire.stream_copy import STREAM_NBYTES, load, stream_copy
from stoker.worker import collate
from tests.equality.sides import both, installed

BATCH_SIZE = 4
NUM_FLOATS = STREAM_NBYTES // 4 // BATCH_SIZE + 5  # a sample's; not a whole number of lines


def some(index: int, *shape: int) -> torch.Tensor:
    return torch.rand(*shape) + index


def born_elsewhere(samples: list[torch.Tensor]) -> list[object]:
    """Made by the user's own collate function: copied into the arena as it is sent."""
    x = torch.stack(samples)
    return [x, x.numpy().astype(np.float64), x[1:, 3:]]


SAMPLES = {
    "image": lambda i: some(i, NUM_FLOATS),
    "and label": lambda i: {"x": some(i, 3, NUM_FLOATS), "y": i, "z": [some(i, 5)]},
    "array": lambda i: some(i, NUM_FLOATS).numpy(),
    "bfloat16": lambda i: some(i, 2 * NUM_FLOATS).bfloat16(),
    "bool": lambda i: some(i, 4 * NUM_FLOATS) > i + 0.5,
    "complex": lambda i: torch.complex(some(i, NUM_FLOATS), some(i, NUM_FLOATS)),
    "at an odd address": lambda i: some(i, NUM_FLOATS + 1)[1:],
    "not contiguous": lambda i: some(i, 2, NUM_FLOATS).t(),
}


class Large(Dataset):
    def __init__(self, kind: str) -> None:
        self.kind = kind

    def __len__(self) -> int:
        return 3 * BATCH_SIZE + 1

    def __getitem__(self, index: int) -> object:
        return SAMPLES[self.kind](index)


class Remembering(Large):
    """Holds on to its samples, and changes them behind the batch's back."""

    def __init__(self, kind: str) -> None:
        super().__init__(kind)
        self.buffer = torch.zeros(NUM_FLOATS)
        self.kept: list[object] = []
        self.weakly: weakref.WeakValueDictionary[int, torch.Tensor] = weakref.WeakValueDictionary()

    def __getitem__(self, index: int) -> object:
        return getattr(self, self.kind)(index)

    def one_buffer(self, index: int) -> torch.Tensor:
        return self.buffer.copy_(some(index, NUM_FLOATS))

    def views_of_one_buffer(self, index: int) -> torch.Tensor:
        return self.one_buffer(index)[:]

    def an_array_over_it(self, index: int) -> torch.Tensor:
        x = some(index, NUM_FLOATS)
        self.kept.append(x.numpy())
        self.kept[0][:7] = index
        return x

    def the_last_one_is_changed(self, index: int) -> object:
        if self.kept:
            self.kept[-1][0].add_(1)
        self.kept.append([some(index, NUM_FLOATS), index])
        return self.kept[-1]

    def made_again_once_it_is_gone(self, index: int) -> torch.Tensor:
        x = self.weakly.get(index // 2)
        if x is None:
            x = self.weakly[index // 2] = some(index, NUM_FLOATS)
        return x


REMEMBERED = [
    name for name, value in vars(Remembering).items() if name[0] != "_" and callable(value)
]


def strides_and_batches(loader):
    for batch in loader:
        yield batch
        parts = batch.values() if isinstance(batch, dict) else [batch]
        yield [x.stride() for x in parts if isinstance(x, torch.Tensor)]


def make(kind, num_workers, collate_fn=None):
    return DataLoader(Large(kind), BATCH_SIZE, num_workers=num_workers, collate_fn=collate_fn)


@pytest.fixture(params=["streamed", "no library"])
def library(request, monkeypatch, tmp_path):
    if request.param == "no library":
        missing = load(tmp_path / "libstream_copy.so")
        for module in (batch_codec, collate):
            monkeypatch.setattr(module, "stream_copy", missing)
    elif stream_copy is None:
        pytest.skip("libstream_copy.so was not built here (no C compiler?)")


@pytest.mark.parametrize("kind", SAMPLES)
def test_large_samples_are_stacked_as_torch_stacks_them(library, kind):
    both(partial(make, kind), strides_and_batches)


@pytest.mark.parametrize("kind", REMEMBERED)
def test_large_samples_that_the_dataset_holds_are_torchs(kind):
    def run(loader):
        yield from loader
        yield from loader

    both(
        lambda w: DataLoader(
            Remembering(kind),
            BATCH_SIZE,
            num_workers=w,
            persistent_workers=True,
            multiprocessing_context="fork",  # a dataset with weak references cannot be pickled
        ),
        run,
    )


def test_batches_arrive_while_the_script_makes_its_tensors_on_another_device():
    def run(loader):
        iterator = iter(loader)
        with torch.device("meta"):  # as torch.set_default_device("cuda") where there is one
            yield from iterator

    both(partial(make, "and label"), run)


@pytest.mark.away_by_default
def test_a_large_batch_born_elsewhere_arrives_whole(library):
    both(partial(make, "image", collate_fn=born_elsewhere), iter)


def test_large_samples_that_do_not_fit_raise_torchs_error(library):
    def error_of(samples):
        with pytest.raises(RuntimeError) as caught:
            default_collate([*samples, samples[0][1:]])
        return str(caught.value)

    both(partial(make, "image", collate_fn=error_of), iter)


def test_a_worker_stacks_with_streaming_stores_where_it_can():
    """Without this, all of the above could be torch's own doing."""

    def is_replaced(_):
        stack = torch.utils.data._utils.collate.default_collate_fn_map[torch.Tensor]
        return hasattr(stack, "__wrapped__")

    with installed():
        assert set(make("image", 2, is_replaced)) == {stream_copy is not None}
