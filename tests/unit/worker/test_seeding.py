"""A chain's generators begin as those of torch's worker, and can be put back."""

import random

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data._utils.worker import _generate_state

from stoker.scheduler.tasks.chain import numpy_entropy, worker_seed
from stoker.worker.seeding import restore_generators, save_generators, seed_generators

# torch draws its base seed as an int64 that is not negative.
base_seeds = st.integers(0, 2**63 - 1)
worker_ids = st.integers(0, 1000)


@pytest.fixture(autouse=True)
def the_generators_are_put_back():
    saved = save_generators()
    threads = torch.get_num_threads()
    yield
    restore_generators(saved)
    torch.set_num_threads(threads)


def draws():
    return random.random(), np.random.rand(), torch.rand(()).item()


@given(base_seeds, worker_ids)
def test_numpy_gets_the_words_that_torch_gives_it(base_seed, worker_id):
    words = np.random.SeedSequence(numpy_entropy(base_seed, worker_id)).generate_state(4)
    assert words.tolist() == _generate_state(base_seed, worker_id)


@pytest.mark.parametrize("base_seed", [0, 1, 2**32 - 1, 2**32, 2**32 + 1, 2**63 - 1])
@pytest.mark.parametrize("worker_id", [0, 1, 7])
def test_all_three_begin_as_torchs_worker(base_seed, worker_id):
    seed = base_seed + worker_id
    random.seed(seed)
    torch.manual_seed(seed)
    np.random.seed(_generate_state(base_seed, worker_id))
    expected = draws()
    assert seed_generators(base_seed, worker_id) == seed
    assert draws() == expected


@given(base_seeds)
def test_neighbours_have_neighbouring_seeds(base_seed):
    assert worker_seed(base_seed, 3) == worker_seed(base_seed, 0) + 3


def test_a_negative_worker_is_refused():
    with pytest.raises(ValueError, match="worker_id must be >= 0, got -1"):
        worker_seed(0, -1)


@pytest.mark.parametrize(
    "draw",
    [
        random.random,
        lambda: random.gauss(0, 1),
        lambda: np.random.randn(3),
        lambda: torch.rand(3),
        lambda: torch.randn(1),
        lambda: random.shuffle([1, 2, 3]),
    ],
    ids=["random", "gauss", "numpy normal", "torch", "torch normal", "shuffle"],
)
def test_any_draw_shows_and_can_be_undone(draw):
    seed_generators(5, 0)
    before = save_generators()
    draw()
    after = save_generators()
    assert after != before
    expected = draws()
    restore_generators(after)
    assert save_generators() == after
    assert draws() == expected
    restore_generators(before)
    assert save_generators() == before


def test_the_second_half_of_a_pair_of_normals_is_kept():
    seed_generators(5, 0)
    random.gauss(0, 1), np.random.randn()
    saved = save_generators()
    expected = random.gauss(0, 1), np.random.randn()
    restore_generators(saved)
    assert (random.gauss(0, 1), np.random.randn()) == expected


def test_equal_states_are_equal_bytes():
    seed_generators(11, 2)
    first = save_generators()
    draws()
    seed_generators(11, 2)
    assert save_generators() == first
