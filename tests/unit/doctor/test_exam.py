"""When steps are steady, and what they add up to."""

import pytest
import torch

from stoker.doctor.exam import MAX_S, Step, are_steady, count, rebuilt, summed
from stoker.stalls.split import Seen


def steps(*walls_s):
    return [Step(wall_s, wall_s / 2, wall_s, 8, Seen(compute_s=wall_s / 2)) for wall_s in walls_s]


def test_a_few_short_steps_are_not_enough():
    assert not are_steady(steps(*[0.1] * 39))
    assert are_steady(steps(*[0.1] * 41))
    assert not are_steady(steps(*[1.0] * 19))


def test_steps_that_change_are_waited_for_but_not_for_ever():
    slower = [0.1 + 0.01 * k for k in range(45)]
    assert not are_steady(steps(*slower))
    assert are_steady(steps(*slower, MAX_S))
    assert not are_steady(steps(MAX_S, MAX_S))


def test_the_first_steps_are_left_out():
    whole = summed(steps(5.0, *[1.0] * 9), 0.1)
    assert (whole.num, whole.num_samples, whole.wall_s, whole.wait_s, whole.cpu_s) == (
        9,
        72,
        9.0,
        4.5,
        9.0,
    )
    assert whole.rate == 8.0
    assert whole.split.compute_s == pytest.approx(4.5)
    assert summed([], 0.5).rate == 0.0


class Loader:
    def __init__(self, batch_size, auto=True):
        self.batch_size, self._auto_collation = batch_size, auto


def test_samples_are_counted_as_the_loader_batches_them():
    images = torch.zeros(6, 3, 8, 8)
    assert count(Loader(8), [images, torch.zeros(6)]) == 6
    assert count(Loader(None), {"x": images}) == 6  # with a batch_sampler
    assert count(Loader(None, auto=False), images) == 1
    assert count(Loader(None), object()) == 1


def test_a_batch_that_a_loop_takes_apart_is_whole_again():
    inner = torch.zeros(2)
    batch = {"x": inner, "more": [inner, (1, {"y": 2})]}
    for _ in range(2):
        one = rebuilt(batch)
        assert one == batch and one["x"] is inner
        del one["x"]
        one["more"][1][1].pop("y")
        one["more"].pop()
