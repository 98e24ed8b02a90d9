"""Which samplers may be asked earlier than torch would ask them."""

import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    DistributedSampler,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

from stoker.scheduler.tasks.plan import Task, may_run_ahead

DATA = list(range(10))


class Mine(RandomSampler):
    pass


@pytest.mark.parametrize(
    "sampler",
    [
        SequentialSampler(DATA),
        RandomSampler(DATA),
        DistributedSampler(DATA, num_replicas=2, rank=0),
        WeightedRandomSampler([1.0] * 10, 10),
        BatchSampler(RandomSampler(DATA), 2, False),
        BatchSampler(BatchSampler(SequentialSampler(DATA), 2, False), 2, False),
    ],
    ids=lambda sampler: type(sampler).__name__,
)
def test_a_sampler_with_a_private_generator_may_run_ahead(sampler):
    assert may_run_ahead(sampler)


@pytest.mark.parametrize(
    "sampler",
    [
        RandomSampler(DATA, generator=torch.Generator()),
        SubsetRandomSampler(DATA),
        WeightedRandomSampler([1.0] * 10, 10, generator=torch.Generator()),
        Mine(DATA),
        DATA,
        None,
        BatchSampler(SubsetRandomSampler(DATA), 2, False),
        BatchSampler(RandomSampler(DATA, generator=torch.Generator()), 2, False),
        BatchSampler(Mine(DATA), 2, False),
    ],
    ids=lambda sampler: type(sampler).__name__,
)
def test_in_doubt_nothing_is_drawn_early(sampler):
    assert not may_run_ahead(sampler)


def test_two_tasks_with_equal_fields_are_two_tasks():
    assert Task(0, 0, b"") != Task(0, 0, b"")
