"""A shuffled order is torch's, drawn at the same moments from the same generators."""

import itertools

import pytest
import torch
from torch.utils.data import RandomSampler

from stoker.intercept.shuffle import PIECE, shuffle

TORCHS = RandomSampler.__iter__
OURS = shuffle(TORCHS)


def story(iterate, make_sampler, num_taken=None):
    """Every index with the state of both generators when it came, an error, what is drawn next."""
    torch.manual_seed(3)
    generator = torch.Generator().manual_seed(4)
    told = []
    try:
        sampler = make_sampler(generator)
        for epoch in range(2):
            iterator = iterate(sampler)
            told.append((epoch, torch.get_rng_state().sum().item()))
            for index in itertools.islice(iterator, num_taken):
                told.append((index, type(index), generator.get_state().sum().item()))
            told.append(torch.get_rng_state().sum().item())
    except Exception as error:
        told.append((type(error), str(error)))
    return told, torch.rand(2).tolist(), torch.rand(2, generator=generator).tolist()


@pytest.mark.cover(2)
@pytest.mark.parametrize("num_taken", [None, 0, 1, 17])
@pytest.mark.parametrize("has_generator", [False, True])
@pytest.mark.parametrize(
    "kwargs",
    [{}, {"num_samples": 5}, {"num_samples": 40}, {"num_samples": 45}, {"replacement": True},
     {"replacement": True, "num_samples": 100}],
    ids=str,
)  # fmt: skip
def test_a_shuffled_order_is_torchs(kwargs, has_generator, num_taken):
    def make_sampler(generator):
        return RandomSampler(range(20), generator=generator if has_generator else None, **kwargs)

    assert story(OURS, make_sampler, num_taken) == story(TORCHS, make_sampler, num_taken)


@pytest.mark.parametrize("num", [PIECE - 1, PIECE, PIECE + 1, 3 * PIECE + 5])
def test_an_order_of_several_pieces(num):
    def indices(iterate):
        torch.manual_seed(1)
        return list(iterate(RandomSampler(range(num)))), torch.rand(1).item()

    assert indices(OURS) == indices(TORCHS)


class Growing:
    """A data source that changes while it is sampled."""

    def __init__(self, sizes):
        self.sizes = list(sizes)

    def __len__(self):
        return self.sizes.pop(0) if len(self.sizes) > 1 else self.sizes[0]


@pytest.mark.parametrize("sizes", [[5, 5, 5, 9, 3, 7, 2], [4, 4, 0], [6, 6, 6, 12, 1]], ids=str)
def test_a_data_source_that_changes(sizes):
    def make_sampler(_):
        return RandomSampler(Growing(sizes))

    assert story(OURS, make_sampler) == story(TORCHS, make_sampler)
