"""Where generators stand: no draw of any kind is missed, and looking moves nothing."""

import random
import sys

import numpy as np
import pytest
import torch

from stoker.memory.watch.positions import Generators, global_look

NUM = 700  # more than a state of 624 words: it is computed anew in between
DRAWS = {
    "torch.rand": lambda: torch.rand(1),
    "torch.rand(20)": lambda: torch.rand(20),
    "torch.randn(())": lambda: torch.randn(()),
    "torch.randn(()) double": lambda: torch.randn((), dtype=torch.float64),
    "torch.randn(100)": lambda: torch.randn(100),
    "torch.randint": lambda: torch.randint(5, (1,)),
    "torch.randperm": lambda: torch.randperm(3),
    "torch.bernoulli": lambda: torch.bernoulli(torch.tensor(0.5)),
    "torch.multinomial": lambda: torch.multinomial(torch.ones(3), 1),
    "normal_": lambda: torch.empty(3).normal_(),
    "uniform_": lambda: torch.empty(3).uniform_(),
    "exponential_": lambda: torch.empty(1).exponential_(),
    "log_normal_": lambda: torch.empty(()).log_normal_(),
    "np.rand": lambda: np.random.rand(),
    "np.randn": lambda: np.random.randn(),
    "np.randint": lambda: np.random.randint(5),
    "np.permutation": lambda: np.random.permutation(3),
    "np.normal": lambda: np.random.normal(),
    "np.choice": lambda: np.random.choice(5),
    "np.beta": lambda: np.random.beta(1, 2),
    "np.standard_normal": lambda: np.random.standard_normal(3),
    "np.bytes": lambda: np.random.bytes(1),
    "random.random": lambda: random.random(),
    "random.gauss": lambda: random.gauss(0, 1),
    "random.normalvariate": lambda: random.normalvariate(0, 1),
    "random.choice": lambda: random.choice([1, 2, 3]),
    "random.shuffle": lambda: random.shuffle([1, 2, 3]),
    "random.getrandbits": lambda: random.getrandbits(3),
}


@pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS)
def test_no_draw_is_missed(draw):
    look = global_look()
    for _ in range(NUM):
        before = look()
        draw()
        assert look() != before


def test_looking_and_other_work_move_nothing():
    look = global_look()
    before = look()
    state = torch.get_rng_state(), np.random.get_state()[1].tobytes(), random.getstate()
    torch.randn(3, generator=torch.Generator().manual_seed(1))
    np.random.default_rng(1).random()
    random.Random(1).random()
    assert look() == before
    assert torch.equal(torch.get_rng_state(), state[0])
    assert (np.random.get_state()[1].tobytes(), random.getstate()) == state[1:]


def test_a_replaced_bit_generator_is_watched_too():
    before = np.random.get_bit_generator()
    try:
        look = global_look()
        for kind in (np.random.MT19937, np.random.PCG64, np.random.Philox):
            seen = look()
            np.random.rand()
            assert look() != seen
            np.random.set_bit_generator(kind(4))
            assert look() != seen
    finally:
        np.random.set_bit_generator(before)


@pytest.mark.parametrize("kind", [np.random.MT19937, np.random.PCG64])
@pytest.mark.parametrize("shape", [(), (3,)])
def test_what_is_saved_is_what_numpy_tells_of_its_state_and_brings_it_back(kind, shape):
    generators, before = Generators(global_look(), ()), np.random.get_bit_generator()
    try:
        np.random.set_bit_generator(kind(3))
        np.random.standard_normal(shape)
        saved, told = generators.save(), np.random.get_state(legacy=False)
        assert repr(saved[1]) == repr(told)
        drawn = np.random.standard_normal(700)
        assert not generators.are_at(saved)
        generators.restore(saved)
        assert generators.are_at(saved)
        assert np.random.standard_normal(700).tobytes() == drawn.tobytes()
    finally:
        np.random.set_bit_generator(before)


def test_a_layout_that_is_not_known_leads_to_whole_states(monkeypatch):
    module = sys.modules[global_look.__module__]
    monkeypatch.setattr(module, "_state_start", lambda: None)
    monkeypatch.setattr(module, "_kept_normal", lambda legacy: None)
    look = module.global_look()
    for draw in (lambda: torch.randn(()), np.random.randn, random.random):
        seen = look()
        draw()
        assert look() != seen


def test_a_generator_that_was_just_seeded_shows_another_seed():
    look = global_look()
    random.seed(1)
    np.random.seed([1, 2])
    torch.manual_seed(1)
    before = look()
    random.seed(2)
    assert look() != before
    before = look()
    np.random.seed([1, 3])
    assert look() != before
    before = look()
    torch.manual_seed(2)
    assert look() != before
